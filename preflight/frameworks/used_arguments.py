"""Which objects of training arguments train: those that a Trainer is made with. A program may make others, and a module
that it imports for one constant too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from preflight.frameworks.transformers_trainer import from_command_line
from preflight.program.bindings import constant, same
from preflight.program.loops import backwards
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Unknown

_POSITION = 1
"""Of `args` in transformers' and TRL's trainers: `Trainer(model, args)`."""


def used(made: Sequence[CallRecord], trainers: Sequence[CallRecord], calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The arguments' objects that the program's trainers take; all of them if that cannot be followed."""
    if not any(record.method.endswith("Trainer") for record in calls) and backwards(calls):
        return []  # its own loop trains, and reads of such an object what it needs
    taken = [_taken(record, made) for record in trainers]
    if not taken or not all(taken):
        return list(made)
    return [record for record in made if any(record is one for some in taken for one in some)]


def _taken(trainer: CallRecord, made: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls that made the arguments of one Trainer; empty if one of them is not known."""
    given = trainer.object("args", _POSITION)
    found: list[CallRecord] = []
    for one in alternatives(given) if given is not None else ():
        maker = one.record if isinstance(one, Instance) else None
        same_place = [each for each in made if maker is not None and each.node is maker.node]
        if not same_place:
            return []
        # a function that is called twice makes two: `made` may hold copies of the calls, with more arguments
        found += [each for each in same_place if maker is not None and each.args == maker.args] or same_place
    return found


def beside_each_other(made: Sequence[CallRecord], groups: Sequence[Sequence[Binding]]) -> list[Binding]:
    """The bindings of each object. If it trains with one after the other, what they say differently is unknown.

    Objects that a condition chooses between, or that are made on the command line, are one and the same training.
    """
    branches = any(isinstance(constant(condition), Unknown) for record in made for condition in record.conditions)
    if len(groups) < 2 or branches or any(from_command_line(record) for record in made):
        return [one for group in groups for one in group]
    fields = dict.fromkeys(one.field for group in groups for one in group)
    return [each for field in fields for each in _joined([_of(field, group) for group in groups])]


def _of(field: str, group: Iterable[Binding]) -> list[Binding]:
    return [one for one in group if one.field == field]


def _joined(groups: Sequence[list[Binding]]) -> list[Binding]:
    first = groups[0]
    if all(len(group) == len(first) and all(map(_alike, group, first)) for group in groups):
        return first
    words = "the program trains several times, with different values"
    one = next(group[-1] for group in groups if group)
    return [replace(one, expr=Const(Unknown(words, Cause.not_modelled), one.origin), rank=Rank.read)]


def _alike(left: Binding, right: Binding) -> bool:
    return left.rank == right.rank and same(left.expr, right.expr)
