"""Programs that train several times: `for size in (8, 32): train(size)`, one training of each model after the other.

A run is a call of a function that sets a training up (it makes an optimizer, a loader or a trainer) and trains in it.
Where the program calls such a function several times, every run has its own values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from preflight.program.bindings import bind, same
from preflight.program.call_site import calls_around, chain_of, frames_of
from preflight.program.loaders import is_loader
from preflight.program.loops import is_backward, starts_trainer
from preflight.program.optimizers import is_optimizer
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Environment, Expr, Unknown, evaluate, unknown

MOST_RUNS = 6
"""Runs of one program that are read; of more, the first ones and the last."""
IN_TURNS = "the program trains with several values one after the other"


def runs_of(calls: Sequence[CallRecord]) -> list[list[CallRecord]]:
    """The calls of each run, with those that belong to none; empty where the program trains once."""
    sets_up = _frames(calls, lambda one: is_optimizer(one) or is_loader(one) or one.method.endswith("Trainer"))
    trains = _frames(calls, lambda one: is_backward(one) or starts_trainer(one))
    by_function: list[list[CallRecord]] = []
    for at, frame in trains.items():
        if at in sets_up:
            # compared and not hashed: a condition may hold a dictionary
            alike = (one for one in by_function if (one[0].name, one[0].conditions) == (frame.name, frame.conditions))
            if (frames := next(alike, None)) is not None:
                frames.append(frame)
            else:
                by_function.append([frame])
    several = [_different(frames) for frames in by_function if len(frames) > 1]
    outermost = min((one for one in several if len(one) > 1), key=lambda one: len(chain_of(one[0])), default=[])
    if not outermost:
        return []
    frames = outermost if len(outermost) <= MOST_RUNS else [*outermost[: MOST_RUNS - 1], outermost[-1]]
    return [_within(frame, outermost, calls) for frame in frames]


_MAY_TRAIN = frozenset(
    {"train", "fit", "learn", "train_model", "finetune", "fine_tune", "pretrain", "train_batch", "fit_one_cycle"}
    | {"spawn", "launch", "notebook_launcher", "run", "step", "exec", "train_step"}
)
"""Methods that train in one library or another, or start what does; a module's `train()` is among them."""


def trains_under(calls: Sequence[CallRecord], given: Environment) -> bool:
    """Whether a training of a program may run where its parameters have these values; true where it has none that was
    read. `if args.do_train: trainer.train()` and a command line without --do_train: none does."""
    starts = [one for one in calls if is_backward(one) or one.method in _MAY_TRAIN]
    return not starts or any(all(evaluate(part, given) is not False for part in one.conditions) for one in starts)


def _within(frame: CallRecord, frames: Sequence[CallRecord], calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls that are made in one frame, and those that are made in none, in the order of this run."""
    made = (_made(record, frame, frames) for record in calls)
    return sorted((one for one in made if one is not None), key=lambda one: one.number)


def _made(record: CallRecord, frame: CallRecord, frames: Sequence[CallRecord]) -> CallRecord | None:
    """A call as it is made in a frame, or outside of all frames; None if it is made in others alone."""
    outside = not any(one is record for one in frames)
    for caller, number in calls_around(record):
        around = {id(caller), *(id(one) for one in frames_of(caller))}
        if id(frame) in around:
            return record if caller is record.caller else replace(record, caller=caller, number=number)
        outside = outside and not any(id(one) in around for one in frames)
    return record if outside else None


def _frames(calls: Sequence[CallRecord], wanted: Callable[[CallRecord], bool]) -> dict[int, CallRecord]:
    """The calls of functions in which a call is made, directly or through others, by their identity."""
    return {id(frame): frame for one in calls if wanted(one) for frame in frames_of(one)}


def _different(frames: Sequence[CallRecord]) -> list[CallRecord]:
    """Calls of one function without those that say what an earlier one says, and without recursive ones."""
    found: list[CallRecord] = []
    for frame in frames:
        recursive = any(one is outer for outer in frames_of(frame) for one in frames)
        if not recursive and not any(frame.says_the_same(one) for one in found):
            found.append(frame)
    return found


def in_turns(bindings: Collection[Binding], runs: Sequence[Collection[Binding]]) -> tuple[Binding, ...]:
    """The bindings of a program, with the fields that its runs do not agree on as unknown."""
    fields = {one.field: None for run in runs for one in run}
    differing = {field for field in fields if not _agree(field, runs)}
    return (*(one for one in bindings if one.field not in differing), *_unknown(differing, runs))


def _agree(field: str, runs: Sequence[Collection[Binding]]) -> bool:
    first, *others = (_values(field, run) for run in runs)
    return all(len(first) == len(one) and all(map(_alike, first, one)) for one in others)


def _values(field: str, run: Collection[Binding]) -> list[Expr]:
    """The different values that a run gives a field, in their order."""
    found: list[Expr] = []
    for one in run:
        if one.field == field and not any(same(one.expr, other) for other in found):
            found.append(one.expr)
    return found


def _alike(one: Expr, other: Expr) -> bool:
    """Whether two expressions say the same, or both are unknown."""
    return same(one, other) or all(isinstance(e, Const) and isinstance(e.value, Unknown) for e in (one, other))


def _unknown(fields: Collection[str], runs: Sequence[Collection[Binding]]) -> Iterator[Binding]:
    for field in sorted(fields):
        place = next((one.origin for run in runs for one in run if one.field == field and one.origin), None)
        yield bind(field, unknown(IN_TURNS, place, Cause.not_modelled), Rank.read)
