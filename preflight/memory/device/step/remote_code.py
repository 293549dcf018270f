"""Models of remote code: memory that they allocate in addition to the law that is used for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.memory.device.law.setup import Terms
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.step.effect import Effect, Passage
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.estimates import ALL_PARTS

_LOGITS, _TEMPORARY = ALL_PARTS.index("logits"), ALL_PARTS.index("temporary")


class RemoteCode(Effect):
    """Memory that a model's own code allocates in addition to the law that is used for it."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        found = held(prepared.resolved, prepared.dims)
        if found:
            yield Passage("forward", "temporary", found)

    def step(self, prepared: PreparedJob, segment: Segment, dims: Mapping[str, int]) -> Segment:
        return pulsed(segment, pulse(prepared.resolved, dims))

    def raised(self, prepared: PreparedJob, peak: int) -> int:
        more = pulse(prepared.resolved, prepared.dims)
        return max(peak, more + at_head(Segment.of(prepared.laws.made.tape, prepared.dims))) if more else peak

    def wider(self, prepared: PreparedJob) -> tuple[float, float]:
        return prepared.resolved.like.wider if prepared.resolved.like is not None else (0.0, 0.0)

    def notes(self, prepared: PreparedJob) -> Iterator[str]:
        if prepared.resolved.like is not None:
            like = prepared.resolved.like
            yield f"{prepared.resolved.name} is estimated with the law of {like.architecture}: {like.note}"


def held(resolved: Resolved, dims: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes of each storage that lives through the step."""
    if resolved.like is None:
        return ()
    width = 2 if resolved.setup.autocast or resolved.setup.weights != "fp32" else 4
    return tuple(width * count for count in elements(resolved.like.held, dims))


def pulse(resolved: Resolved, dims: Mapping[str, int]) -> int:
    """Bytes that live for a moment of forward, before there are logits: in 16 bits of autocast."""
    if resolved.like is None or not resolved.setup.autocast:
        return 0
    return sum(2 * count for count in elements(resolved.like.pulse, dims))


def pulsed(segment: Segment, nbytes: int) -> Segment:
    """A step in which so many bytes live for a moment before its first logits."""
    if not nbytes:
        return segment
    at = _head(segment)
    fresh = 1 + max((birth for _, birth, *_ in segment.events), default=0)
    phase = "forward"
    pair = tuple((kind, fresh, nbytes, _TEMPORARY, phase, "") for kind in "bd")
    return Segment.listed((*segment.events[:at], *pair, *segment.events[at:]))


def at_head(segment: Segment) -> int:
    """Live bytes of a step before its first logits."""
    sign = {"b": 1, "d": -1}
    return sum(sign.get(kind, 0) * nbytes for kind, _, nbytes, *_ in segment.events[: _head(segment)])


def _head(segment: Segment) -> int:
    births = ((n, part) for n, (kind, _, _, part, *_) in enumerate(segment.events) if kind == "b")
    return next((n for n, part in births if part == _LOGITS), 0)


def elements(terms: Terms, dims: Mapping[str, int]) -> tuple[int, ...]:
    """Each term's elements at dimensions; those of the width where a law has heads and their size alone."""
    known = {**dims, "h": dims.get("h") or dims["a"] * dims["d"]}
    found = []
    for count, powers in terms:
        for name, power in powers.items():
            count *= known[name] ** power
        found.append(count)
    return tuple(found)
