"""Jobs with a setting that is not known and has few values: the verdict that holds for all of the values.

Where every value exceeds the GPU, so does the job, and the smallest estimate is reported. Where every value fits, the
job fits, and the largest estimate is reported. Where verdicts differ there is none, and the reason says which values
would fit.

A batch or a length may be any number: the smallest, 1, decides whether the job can fit at all. A length is at most the
positions that the model has a table of: where those fit, every length does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from msgspec.structs import replace

from preflight.memory.device.positions import longest
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Unknown

CANDIDATES: Mapping[str, tuple[object, ...]] = {
    "precision": ("fp32", "bf16-mixed", "bf16"),
    "gradient_checkpointing": (False, True),
    "optimizer": ("adamw", "sgd"),
}
"""Fields of `train`, and values that cover every case. fp16 takes what bf16 does; no optimizer takes less than SGD
without momentum, which has no states, and none in common use more than Adam's two."""
SMALLEST: Mapping[str, int] = {"batch_size": 1, "seq_len": 1, "target_len": 1}
"""Fields of `train` that more of never takes less memory, and the least that they can be."""
Estimating: TypeAlias = "Callable[[Job], DeviceEstimate | Unknown]"
Way: TypeAlias = "tuple[Mapping[str, object], DeviceEstimate]"


def over_candidates(job: Job, reason: Unknown, estimate: Estimating) -> DeviceEstimate | Unknown:
    """An estimate that holds for every value of the settings that `reason` names; else `reason`, with the values that
    would fit."""
    ways = list(_ways(job, estimate)) if has_few_values(reason) else []
    if not ways:
        return reason
    verdicts = {found.verdict for _, found in ways}
    named = " and ".join(f"train.{name}" for name in ways[0][0])
    least = min((found for _, found in ways), key=lambda one: one.process.expected)
    most = max((found for _, found in ways), key=lambda one: one.process.expected)
    if verdicts == {"exceeds"}:
        note = f"{named} not known: the estimate is a lower bound over its values"
        return replace(_widened(least, most), lower_bound=True, notes=(*least.notes, note))
    if verdicts == {"fits"}:
        note = f"{named} not known: the estimate is an upper bound over its values"
        return replace(_widened(most, least), notes=(*most.notes, note))
    return replace(reason, words=f"{reason.words}; {_said(ways)}") if "unknown" not in verdicts else reason


def at_least(job: Job, reason: Unknown, estimate: Estimating) -> DeviceEstimate | None:
    """The estimate with the smallest value of the setting that `reason` names, if even that exceeds the GPU: then every
    value does. None where it does not, or where another setting is missing."""
    name = _missing(job, reason)
    found = estimate(_with(job, name, SMALLEST[name])) if name is not None else reason
    if isinstance(found, Unknown) or name is None or found.verdict != "exceeds":
        return None
    note = f"a lower bound: train.{name} is not known, and {SMALLEST[name]} is the least that it can be"
    return replace(found, lower_bound=True, find_largest_batch=lambda: None, notes=(*found.notes, note))


def at_most(
    job: Job, reason: Unknown, estimate: Estimating, may_fit: Callable[[Job], bool | None]
) -> DeviceEstimate | None:
    """The estimate with the longest that the length can be that `reason` names, if even that fits the GPU: then every
    length does. None where it does not, where nothing ends the length, or where another setting is missing.
    `may_fit`: False where an estimate surely says that a job does not fit, told without one."""
    name = _missing(job, reason)
    most = longest(job, f"train.{name}")
    if name is None or most is None or may_fit(_with(job, name, most)) is False:
        return None
    found = estimate(_with(job, name, most))
    if isinstance(found, Unknown) or found.verdict != "fits":
        return None
    least = estimate(_with(job, name, SMALLEST[name]))
    if isinstance(least, Unknown):
        return None
    note = f"train.{name} not known: the estimate is an upper bound, at the {most:,} positions of the model"
    # the largest batch is another for each length
    return replace(_widened(found, least), notes=(*found.notes, note), find_largest_batch=lambda: None)


def has_an_end(job: Job, reason: Unknown) -> bool:
    """Whether only a length is missing that the positions of the model end: then its longest may fit."""
    name = _missing(job, reason)
    return name is not None and longest(job, f"train.{name}") is not None


def _missing(job: Job, reason: Unknown) -> str | None:
    """The number of `train` that `reason` names alone."""
    name = next((name for name in SMALLEST if reason.fields == (f"train.{name}",)), None)
    return name if name is not None and getattr(job.train, name) is None else None


def _with(job: Job, name: str, value: int) -> Job:
    return job.model_copy(update={"train": job.train.model_copy(update={name: value})})


def has_few_values(reason: Unknown) -> bool:
    """Whether only settings with few values are missing."""
    return bool(reason.fields) and set(reason.fields) <= {f"train.{name}" for name in CANDIDATES}


def _ways(job: Job, estimate: Estimating) -> Iterator[Way]:
    """Every combination of values of the missing settings, with its estimate; empty where one has no estimate."""
    open_ = [name for name in CANDIDATES if getattr(job.train, name) is None]
    found: list[Way] = []
    for values in product(*(CANDIDATES[name] for name in open_)):
        chosen = dict(zip(open_, values, strict=True))
        one = estimate(job.model_copy(update={"train": job.train.model_copy(update=chosen)}))
        if isinstance(one, Unknown) or one.lower_bound:
            return
        found.append((chosen, one))
    yield from found


def _widened(one: DeviceEstimate, other: DeviceEstimate) -> DeviceEstimate:
    """`one`, with intervals that reach to `other`'s."""
    return replace(
        one,
        requested=_both(one.requested, other.requested),
        allocated=_both(one.allocated, other.allocated),
        reserved=_both(one.reserved, other.reserved),
        process=_both(one.process, other.process),
    )


def _both(one: Interval, other: Interval) -> Interval:
    return Interval(min(one.low, other.low), one.expected, max(one.high, other.high))


def _said(ways: Sequence[Way]) -> str:
    """The values with the largest estimate that fits, in words."""
    fitting = [way for way in ways if way[1].verdict == "fits"]
    if not fitting:
        return "it is at risk with the values that could fit"
    chosen, found = max(fitting, key=lambda way: way[1].process.expected)
    words = " and ".join(f"train.{name} {_word(value)}" for name, value in chosen.items())
    return f"it fits with {words} ({found.process.expected / 2**30:.1f} GiB), and not with every value"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Estimates of the layouts that a job may have, as one.


def fullest(ranks: Sequence[DeviceEstimate], others: Sequence[DeviceEstimate]) -> DeviceEstimate:
    """The estimate of the fullest rank. Its intervals cover the alternatives too; its largest batch is the smallest of
    all."""
    found = max(ranks, key=lambda one: one.process.expected)
    every = [*ranks, *others]
    process = _over(found.process, [one.process for one in others])
    return replace(
        found,
        requested=_over(found.requested, [one.requested for one in others]),
        allocated=_over(found.allocated, [one.allocated for one in others]),
        reserved=_over(found.reserved, [one.reserved for one in others]),
        process=process,
        verdict=process.verdict(found.capacity),
        find_largest_batch=lambda: min((n for one in every if (n := one.largest_batch_size) is not None), default=None),
    )


def _over(one: Interval, others: Sequence[Interval]) -> Interval:
    return Interval(min([one.low, *(o.low for o in others)]), one.expected, max([one.high, *(o.high for o in others)]))
