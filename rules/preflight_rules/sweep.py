"""Rules about search spaces and sweeps."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.values import Origin, Range
from preflight_rules import constraints, spaces, sweep_examples
from preflight_rules.common import bounds, from_problems, gib, parts_of, several, severity_of, values_text
from preflight_rules.gpu import FIELDS, evidence, states_of


def binding(case: Case) -> DeviceEstimate | HostEstimate | None:
    """The side of the worst combination that does not fit: one that exceeds first, then the GPU."""
    sides = [side for side in (case.estimates.device, case.estimates.host) if side is not None]
    for verdict in ("exceeds", "at-risk"):
        for side in sides:
            if side.verdict == verdict:
                return side
    return None


def _worst(case: Case, rule: str, message: str, places: list[tuple[Origin, str]], severity: Severity) -> Finding:
    """A finding about a space, with the evidence of its worst combination."""
    estimate = binding(case)
    device = estimate if isinstance(estimate, DeviceEstimate) else None
    host = estimate if isinstance(estimate, HostEstimate) else None
    interval = device.process if device is not None else host.per_node if host is not None else None
    capacity = device.capacity if device is not None else host.limit if host is not None else None
    rated = severity_of(interval, capacity) if interval is not None else None
    origin = places[0][0] if places else case.origin(*FIELDS)
    breakdown = device.breakdown if device is not None else host.breakdown if host is not None else {}
    return Finding(
        rule=rule,
        severity=severity,
        confidence=rated[1] if rated is not None else Confidence.medium,
        message=message,
        origin=origin,
        settings=FIELDS,
        related=tuple(places[1:]),
        label="not all of it fits" if case.space.counts.fits else "none of it fits",
        notes=(*spaces.safe_notes(case), *(evidence(case, device) if device is not None else ())),
        parts=parts_of(breakdown),
        interval=None if interval is None else bounds(interval),
        capacity=capacity,
        tier="device" if device is not None else "host",
        proposals=spaces.space_proposals(case),
    )


def _places(case: Case) -> list[tuple[Origin, str]]:
    """Where values that have to go are written, the worst combination's box first."""
    ordered = sorted(case.space.boxes, key=lambda verdict: verdict.worst is not case.space.worst)
    found: list[tuple[Origin, str]] = []
    for verdict in ordered:
        for axis, lost in spaces.dropped(verdict):
            origin = spaces.place_of(axis, lost)
            if origin is not None and all(origin != place for place, _ in found):
                kept = verdict.safe.keep.get(axis.name, ()) if verdict.safe is not None else ()
                ranged = isinstance(axis.domain, Range)
                words = f"keeps {values_text(kept, axis.domain)}" if ranged else f"loses {values_text(lost)}"
                found.append((origin, f"{axis.name} {words}"))
    if not found:
        box = ordered[0].box
        found = [(axis.origin, f"{axis.name} is swept") for axis in box.memory_axes if axis.origin is not None]
    return found


def _all_unsafe(case: Case) -> bool:
    """Whether every combination is counted, and none fits or is unknown."""
    counts = case.space.counts
    return case.space.combinations is not None and bool(counts.unsafe) and not counts.fits + counts.unknown


class SpacePartlyUnsafe(Rule):
    """Some combinations of a search do not fit: those trials die, and the search learns from the others alone.

    Only axes that reach a setting with a say in memory count. The message has the number of combinations that exceed or
    are at risk and the worst one with its need; the notes have the largest part of the space that is safe.

    A fix outside the search is tried first (gradient checkpointing, a smaller micro-batch with accumulation, the
    evaluation batch, the loaders): it keeps the whole space and the same runs. Else the values that have to go are
    dropped so that one box, as large as can be, is left; that is another search, hence unsafe. Your constraints hold in
    it. In a program, where each branch draws its own values, each branch is narrowed by itself; without branches it is
    a report only, and what one box cannot say is said per model.
    """

    name = "space-partly-unsafe"
    summary = "Some combinations of a search do not fit"
    examples = sweep_examples.PARTLY

    def check(self, case: Case) -> Iterator[Finding]:
        counts, estimate = case.space.counts, binding(case)
        if not several(case) or not (counts.unsafe or estimate is not None) or _all_unsafe(case):
            return
        exceeds = counts.exceeds or (estimate is not None and estimate.verdict == "exceeds")
        severity = Severity.error if exceeds else Severity.warning
        said = spaces.counts_text(case) if counts.unsafe else "not all of an unbounded number of combinations fit"
        message = f"{said}; {spaces.worst_text(case)}"
        yield _worst(case, self.name, message, _places(case), severity)


class SpaceAllUnsafe(Rule):
    """No combination of a search fits: every trial will die.

    The cause is then a setting outside the search, or all values of an axis. The message names the worst combination
    with its need.

    The fix is one of `gpu-memory-exceeded` or `host-memory-exceeded`, applied to what all combinations share.
    """

    name = "space-all-unsafe"
    summary = "No combination of a search fits"
    examples = sweep_examples.ALL

    def check(self, case: Case) -> Iterator[Finding]:
        counts = case.space.counts
        if not several(case) or not _all_unsafe(case):
            return
        severity = Severity.error if counts.exceeds else Severity.warning
        total = case.space.combinations
        number = f"none of the {total:,} combinations fits"
        estimate = binding(case)
        sure = f" ({counts.at_risk:,} at risk)" if counts.at_risk else ""
        message = f"{number}{sure}; {spaces.worst_text(case)}"
        if isinstance(estimate, DeviceEstimate) and estimate.capacity is not None:
            states = sum(states_of(case, estimate).values())
            message += f", {gib(states)} of it weights, gradients and optimizer states"
        yield _worst(case, self.name, message, _blamed(case), severity)


def _blamed(case: Case) -> list[tuple[Origin, str]]:
    """Settings outside the search first: they are what all combinations share."""
    shared = [(case.origin(field), f"{field} = {case.job.get(field)}") for field in ("train.vocab_size", *FIELDS)]
    found = [(origin, words) for origin, words in shared if origin is not None]
    return found or _places(case)


class NumberReadAsString(Rule):
    """A number is written so that the tool which reads the file takes it for text.

    YAML 1.1, which `wandb sweep` reads, wants a dot and a sign in `1.0e-5`: `1e-5` is the string "1e-5". In `min` or
    `max` the sweep is refused; in `values` it is passed on, and the program compares a string with a number.

    The fix writes the number so that it is read as one; it is safe, since no other reading makes sense.
    """

    name = "number-read-as-string"
    summary = "A number that its reader takes for text"
    examples = sweep_examples.NUMBER

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)


class ConstraintViolated(Rule):
    """An invariant that you stated in `[tool.preflight.constraints]` does not hold for these settings.

    A constraint is an inequality over the project's own settings: `graph_vocab_size >= graph_d * (path_len - 1) + 1`.
    In a search it has to hold for every combination. Fixes of other rules respect it; this rule says where the files
    as they stand break it.

    There is no fix: which side has to give is for you to say.
    """

    name = "constraint-violated"
    summary = "A stated invariant does not hold"
    examples = sweep_examples.CONSTRAINT

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)
        yield from constraints.violations(case, self.name)


RULES: tuple[type[Rule], ...] = (
    SpacePartlyUnsafe,
    SpaceAllUnsafe,
    NumberReadAsString,
    ConstraintViolated,
)
