"""Interpretation of an Optuna program: once as a whole, and once for each choice that decides a branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.optuna.suggest import SUGGEST, SuggestedSpace, space_of, trial
from preflight.frameworks.calls import CallFacts, read_calls
from preflight.frameworks.launch import launch_bindings, start_of
from preflight.python.access import set_attribute
from preflight.python.evaluator import Evaluator
from preflight.python.interpreter import Interpreter
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    FunctionValue,
    Instance,
    Key,
    alternatives,
)
from preflight.python.settings_objects import arguments_of
from preflight.vocabulary.argv import bind_words
from preflight.vocabulary.budgets import STUDY_RUNS
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Branch, Call, Problem, Rank
from preflight.vocabulary.values import Axis, Cause, Choices, Const, Expr, Origin, Range, Ref, Unknown, Value

if TYPE_CHECKING:
    from preflight.python.evaluator import Hook

MAX_VALUES = 16
"""If an axis has more values than this, its branches are not separated by value."""


class Exploration(Struct, frozen=True):
    """One interpretation: its axes, the facts of its calls, and the names on which its conditions depend."""

    evaluator: Evaluator
    space: SuggestedSpace
    facts: CallFacts
    bindings: tuple[Binding, ...]
    decided_by: frozenset[str]

    def like(self, other: Exploration, axis: str) -> bool:
        """Whether a choice of `axis` made no difference."""
        mine = {name: a for name, a in self.space.axes.items() if name != axis}
        theirs = {name: a for name, a in other.space.axes.items() if name != axis}
        return mine == theirs and self.bindings == other.bindings


class Explorer:
    """Interprets one program under assumptions: the command line, and values of axes."""

    def __init__(self, path: str, project: Project, call: Call | None) -> None:
        self.path, self.project, self.call = path, project, call
        self.runs = 0
        self._known: dict[object, Exploration] = {}
        self.words: dict[str, Expr] = {}
        self.defaults = True
        if call is not None and call.words:
            found = self.run({}).evaluator
            self.words = bind_words(list(found.parameters.values()), call.words)
            self._known.clear()

    def run(self, assume: Mapping[str, Expr]) -> Exploration:
        """Interprets the program once for each set of assumptions."""
        key = (self.defaults, tuple(sorted((name, repr(value)) for name, value in assume.items())))
        if key not in self._known:
            self._known[key] = self._run(assume)
        return self._known[key]

    def _run(self, assume: Mapping[str, Expr]) -> Exploration:
        self.runs += 1
        hooks, known = {**SUGGEST, **STUDY}, {**self.words, **assume}
        ev = Interpreter(
            self.project,
            hooks,
            start=start_of(self.call),
            assume=known,
            assume_defaults=self.defaults,
        )
        ev.run(self.path)
        space = space_of(ev)
        facts = read_calls(ev.calls, self.project, parameters=(*ev.parameters, *space.axes))
        bindings = tuple(launch_bindings(self.call, facts.facts, facts.bindings, self.project))
        return Exploration(ev, space, facts, bindings, frozenset(ev.decided_by))

    def deciders(self, found: Exploration) -> list[Axis]:
        """Axes with few values that change the result through a condition, in the order of their suggestion."""
        kept = []
        for axis in found.space.axes.values():
            values = values_of(axis)
            if axis.name not in found.decided_by or values is None or self.runs + len(values) > STUDY_RUNS:
                continue
            tried = [self.run({axis.name: Const(value)}) for value in values]
            if any(not one.like(found, axis.name) for one in tried):
                kept.append(axis)
        return kept

    def leaves(
        self, deciders: Sequence[Axis], assume: Mapping[str, Value]
    ) -> Iterator[tuple[dict[str, Value], Exploration]]:
        """An interpretation for each combination of the deciding axes. A branch has only the axes that it suggests."""
        found = self.run({name: Const(value) for name, value in assume.items()})
        rest = [axis for axis in deciders if axis.name not in assume and axis.name in found.space.axes]
        own = values_of(found.space.axes[rest[0].name]) if rest else None
        if not rest or own is None or self.runs + len(own) > STUDY_RUNS:
            yield dict(assume), found
            return
        for value in own:
            yield from self.leaves(rest[1:], {**assume, rest[0].name: value})


def values_of(axis: Axis) -> tuple[Value, ...] | None:
    """Every value of a small domain."""
    domain = axis.domain
    if isinstance(domain, Choices):
        return domain.values if len(domain.values) <= MAX_VALUES else None
    if isinstance(domain, Range) and domain.integer and domain.step and (domain.size() or 99) <= 8:
        return tuple(int(domain.low + i * domain.step) for i in range(domain.size() or 0))
    return None


# --- branches ---------------------------------------------------------------------------------------------------------


class ExploredBranch(Struct, frozen=True):
    """An unfinished box: the values of each deciding axis in it."""

    chosen: Mapping[str, tuple[Value, ...]]
    axes: tuple[Axis, ...]
    bindings: tuple[Binding, ...]


def branches(explorer: Explorer, found: Exploration) -> tuple[Branch, ...]:
    """The boxes of the space; none if nothing is conditional."""
    deciders = explorer.deciders(found)
    if not deciders:
        return ()
    names = {axis.name for axis in deciders}
    leaves = []
    for chosen, one in explorer.leaves(deciders, {}):
        axes = tuple(axis for axis in one.space.axes.values() if axis.name not in chosen)
        leaves.append(ExploredBranch({name: (value,) for name, value in chosen.items()}, axes, one.bindings))
    merged = leaves
    for name in [axis.name for axis in reversed(deciders)]:
        merged = _merge(merged, name)
    if len(merged) == 1 and not any(len(v) == 1 for v in merged[0].chosen.values()):
        return ()
    originals = {axis.name: axis for axis in deciders if axis.name in names}
    return tuple(_branch(leaf, originals) for leaf in merged)


def _merge(leaves: list[ExploredBranch], name: str) -> list[ExploredBranch]:
    """Joins leaves that differ only in the value of one axis."""
    kept: list[ExploredBranch] = []
    for leaf in leaves:
        rest = {key: value for key, value in leaf.chosen.items() if key != name}
        for index, other in enumerate(kept):
            same = {key: value for key, value in other.chosen.items() if key != name} == rest
            if (
                same
                and name in leaf.chosen
                and name in other.chosen
                and (leaf.axes, leaf.bindings) == (other.axes, other.bindings)
            ):
                kept[index] = replace(other, chosen={**other.chosen, name: other.chosen[name] + leaf.chosen[name]})
                break
        else:
            kept.append(leaf)
    return kept


def _branch(leaf: ExploredBranch, originals: Mapping[str, Axis]) -> Branch:
    fixed: dict[str, Value] = {}
    axes: list[Axis] = []
    for name, values in leaf.chosen.items():
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            axes.append(_restricted(originals[name], values))
    return Branch(fixed, (*axes, *leaf.axes), (), leaf.bindings)


def _restricted(axis: Axis, values: tuple[Value, ...]) -> Axis:
    domain = axis.domain
    if isinstance(domain, Range):
        return axis if domain.size() == len(values) else replace(axis, domain=Choices(values))
    if not isinstance(domain, Choices):
        return axis
    places: tuple[Origin | None, ...] = ()
    if domain.origins:
        places = tuple(domain.origins[domain.values.index(value)] for value in values)
    return replace(axis, domain=Choices(values, places))


def clashing(boxes: Sequence[Branch]) -> Iterator[Problem]:
    """Choices that differ from those of another branch under the same name: Optuna raises ValueError at the first trial
    that has others (optuna/distributions.py, check_distribution_compatibility)."""
    first: dict[str, tuple[Axis, Choices]] = {}
    told: set[str] = set()
    for axis in (axis for branch in boxes for axis in branch.axes):
        if not isinstance(axis.domain, Choices) or axis.origin is None:
            continue
        other, choices = first.setdefault(axis.name, (axis, axis.domain))
        values = [repr(value) for value in axis.domain.values]
        apart = axis.origin == other.origin and not set(values) & {repr(value) for value in choices.values}
        if values == [repr(value) for value in choices.values] or apart or axis.name in told or other.origin is None:
            continue  # apart: what decides the branch, with its own part of one list in each
        told.add(axis.name)
        yield Problem(
            "invalid-config",
            f"{axis.name} has other choices in another branch: Optuna raises ValueError at the first trial that gets "
            "them, since the choices of one name may not change in a study; use another name here",
            axis.origin,
            related=((other.origin, "the other choices"),) if other.origin != axis.origin else (),
        )


# --- what starts an objective -----------------------------------------------------------------------------------------


def optimize(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`study.optimize(objective, ...)`: the objective is called with a trial."""
    known = (record.receiver or "").startswith("optuna") or {"n_trials", "timeout", "n_jobs"} & set(record.kwargs)
    objective = record.object("func", 0)
    if not known or objective is None:
        return None
    space_of(ev).optimize.append(record)
    for one in alternatives(objective):
        ev.call(one, (trial(),))
    _best(record.receiver_object, ev)
    return Const(None)


def _best(study: Abstract | None, ev: Evaluator) -> None:
    """Gives the study its best parameters: a point of its space."""
    params: dict[Key, Abstract] = {name: Ref(name) for name in space_of(ev).axes}
    best = Container("dict", params)
    for one in alternatives(study) if study is not None else ():
        if isinstance(one, Instance):
            one.attributes["best_params"] = best
            one.attributes["best_trial"] = Instance("optuna.trial.FrozenTrial", attributes={"params": best})


def hyperparameter_search(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`trainer.hyperparameter_search(hp_space=...)`: the values of the function replace training arguments."""
    function = record.object("hp_space", 0)
    backend = record.kwargs.get("backend")
    if not isinstance(function, FunctionValue) or (
        backend is not None and ev.value_of(backend) not in ("optuna", None)
    ):
        return None
    space_of(ev).optimize.append(record)
    given = ev.call(function, (trial(),))
    trainer = record.receiver_object
    arguments = arguments_of(trainer, "args") if isinstance(trainer, Instance) else None
    if arguments is None:  # the trainer was not followed
        made = [one for one in ev.calls if one.method.endswith(("TrainingArguments", "SFTConfig", "DPOConfig"))]
        arguments = made[-1].value if made else None
    if isinstance(given, Container) and arguments is not None:
        for key, value in given.items.items():
            set_attribute(ev, arguments, key, value)
    return Instance("transformers.BestRun", record=record)


def jobs(space: SuggestedSpace) -> Binding | None:
    """Trials that share one GPU: the threads of `optimize(n_jobs=k)`."""
    for record in space.optimize:
        expr = record.argument("n_jobs")
        if expr is None:
            continue
        if isinstance(expr, Const) and isinstance(expr.value, int) and expr.value < 1:
            expr = Const(Unknown("one trial per CPU of the machine", Cause.run_time), expr.origin)
        return Binding(
            "parallel.trials_per_gpu", expr, Rank.read, record.keyword_origins.get("n_jobs") or record.origin
        )
    return None


STUDY: Mapping[str, Hook] = {"*.optimize": optimize, "*.hyperparameter_search": hyperparameter_search}
