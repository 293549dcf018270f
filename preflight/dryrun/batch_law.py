"""The law over batch and length of a program: its tapes at several sizes, birth by birth, confirmed at a third.

Two runs with the same births in the same places give the size of every storage at any batch (`RecordedLaw`), and two
more at another length. Whole runs are compared first. Where they differ (validation comes at another place, say), the
second step of both is compared, if no other moment takes more. Where no third run confirms it, there is no law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.dryrun.process import NoAnswer
from preflight.dryrun.report_of_process import RunReport, recording
from preflight.memory.device import recorded
from preflight.memory.device.recorded import Recording
from preflight.memory.device.recorded_law import TOLERANCE, OverLength, RecordedLaw

Again = Callable[[int, "int | None"], RunReport]
"""Runs the program again with a batch and a length (None: its own)."""


class NoLaw(Exception):
    """Nothing is known of other sizes; the message says why, in words that follow "no law over the batch:"."""


class Tape(Struct, frozen=True):
    """What is compared of a run: its allocations, and the place of each birth."""

    recording: Recording
    places: tuple[tuple[object, ...], ...]


class FoundLaw(Struct, frozen=True):
    """A law, and why it does not speak of lengths, if it does not."""

    law: RecordedLaw
    no_lengths: str = ""


def sizes_to_try(own: int) -> tuple[int, int]:
    """Two other batch sizes: half as much again and twice the own, in steps of 8 where the own is one of these, since
    kernels round to 8."""
    step = 8 if own % 8 == 0 else 1
    second = own + max(step, own // 2 // step * step)
    return second, max(2 * own, second + step)


LENGTH_STEP = 32
"""Attention kernels pad to this many positions."""


def lengths_to_try(own: int) -> tuple[int, int] | None:
    """Two shorter lengths: half of the own and three quarters, in steps of 32 where the own is one of these. A longer
    one may be more than the model has positions. None: there are no two."""
    step = LENGTH_STEP if own % LENGTH_STEP == 0 else 1
    half, between = own // 2 // step * step, own * 3 // 4 // step * step
    return (half, between) if 0 < half < between < own else None


def law(own: int, length: int | None, first: RunReport, again: Again, directory: str) -> FoundLaw:
    """The law of a program from its run at its own sizes, and further runs. Raises NoLaw."""
    if first.gpus > 1:
        raise NoLaw("the program uses several GPUs, and another of them may take the most at another size")
    other, third = sizes_to_try(own)
    second = _run(again, other, None, f"batch {other}")
    confirming = _run(again, third, None, f"batch {third}")
    found, windowed = _over_batch(own, length, first, {other: second, third: confirming}, directory)
    if length is None:
        return FoundLaw(found, "the program showed no one length of its batches")
    tried = lengths_to_try(length)
    if tried is None:
        return FoundLaw(found, f"length {length} is too short for two others")
    try:
        shorter = [_run(again, batch, tried[0], f"length {tried[0]}") for batch in (own, other)]
        last = _run(again, third, tried[1], f"length {tried[1]}")
        tapes = [_tape(one, directory, windowed) for one in shorter]
        base = _tape(first, directory, windowed)
        over = OverLength(length, tried[0], _sizes(base, tapes[0], "lengths"), _sizes(base, tapes[1], "lengths"))
        runs = (*found.runs, (own, tried[0]), (other, tried[0]), (third, tried[1]))
        wider = replace(found, lengths=over, runs=runs)
        _confirm(wider, third, tried[1], _tape(last, directory, windowed))
    except NoLaw as error:
        return FoundLaw(found, str(error))
    return FoundLaw(wider)


def _run(again: Again, batch: int, length: int | None, what: str) -> RunReport:
    try:
        return again(batch, length)
    except NoAnswer as error:
        raise NoLaw(f"the run with {what} has no answer: {error}") from error


def _over_batch(
    own: int, length: int | None, first: RunReport, others: dict[int, RunReport], directory: str
) -> tuple[RecordedLaw, bool]:
    """The law over the batch alone, and whether it is of the second step alone. Raises NoLaw."""
    (other, second), (third, confirming) = others.items()
    why = ""
    for windowed in (False, True):
        try:
            base, more, last = (_tape(one, directory, windowed) for one in (first, second, confirming))
            sizes = _sizes(base, more, "batch sizes")
            runs = tuple((batch, length) for batch in (own, other, third))
            found = RecordedLaw(base.recording, own, other, sizes, None, runs, windowed)
            _confirm(found, third, None, last)
        except NoLaw as error:
            why = why or str(error)
            continue
        return found, windowed
    raise NoLaw(why)


def _confirm(found: RecordedLaw, batch: int, length: int | None, last: Tape) -> None:
    """Raises NoLaw if a run is not what the law foretells."""
    foretold = recorded.peak(found.at(batch, length).events).bytes
    seen = recorded.peak(last.recording.events).bytes
    if abs(foretold - seen) > TOLERANCE * seen:
        at = f"batch {batch}" + (f" and length {length}" if length is not None else "")
        raise NoLaw(f"{at} takes {seen:,} bytes of tensors, and the runs before foretell {foretold:,}")


def _sizes(base: Tape, other: Tape, what: str) -> tuple[int, ...]:
    """Bytes of every birth of one tape in another. Raises NoLaw where the two do not align, or a storage shrinks with
    the batch."""
    if base.places != other.places:
        raise NoLaw(f"runs of two {what} do not allocate the same tensors in the same order")
    sizes = iter([event for event in other.recording.events if event >= 0])
    return tuple(next(sizes) if event >= 0 else 0 for event in base.recording.events)


def _tape(report: RunReport, directory: str, windowed: bool) -> Tape:
    whole = recording(report, directory)
    kept = _second_step(report, whole) if windowed else list(range(len(report.events)))
    if windowed:
        whole = _of_events(whole, kept)
    places = [report.places[at] for at in kept]
    return Tape(whole, tuple(_shape(whole.events, [(one.phase, one.module, one.user) for one in places])))


def _second_step(report: RunReport, whole: Recording) -> list[int]:
    """The events of the second step, after the births that live at its start. Raises NoLaw where it is not known, or
    where another moment takes more."""
    ends = [at for at, name in report.marks if name == "stepped"]
    if len(report.steps) != 1 or len(ends) < 2:
        raise NoLaw("runs differ, and several optimizers have no step in common")
    start, end = ends[0], min(ends[1], len(report.events))
    alive = dict.fromkeys(at for at, event in enumerate(whole.events[:start]) if event >= 0)
    for event in whole.events[:start]:
        if event < 0:
            del alive[-1 - event]
    kept = [*alive, *range(start, end)]
    if recorded.peak(_renumbered(whole.events, kept)).bytes < recorded.peak(whole.events).bytes:
        raise NoLaw("runs differ outside of the second step, and their peak is not in it")
    return kept


def _renumbered(events: Sequence[int], kept: Sequence[int]) -> list[int]:
    number = {at: index for index, at in enumerate(kept)}
    return [events[at] if events[at] >= 0 else -1 - number[-1 - events[at]] for at in kept]


def _of_events(whole: Recording, kept: Sequence[int]) -> Recording:
    """The recording of some of its events, in their order."""
    number = {at: index for index, at in enumerate(kept)}
    return replace(
        whole,
        events=_renumbered(whole.events, kept),
        phases=[whole.phases[at] for at in kept],
        parts={number[at]: part for at, part in whole.parts.items() if at in number},
        workspaces=frozenset(number[at] for at in whole.workspaces if at in number),
        where={number[at]: whole.where[at] for at in kept},
        lines={number[at]: whole.lines[at] for at in kept},
        shapes={number[at]: shape for at, shape in whole.shapes.items() if at in number},
    )


def _shape(events: Sequence[int], places: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The places of the births, and which births end between two of them."""
    number: dict[int, int] = {}
    found: list[tuple[object, ...]] = []
    ended: set[int] = set()
    for at, event in enumerate(events):
        if event < 0:
            ended.add(number[-1 - event])
            continue
        number[at] = len(number)
        found.append((*places[at], frozenset(ended)))
        ended = set()
    return found
