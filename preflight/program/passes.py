"""How many sequences go through the model for each sample before the gradients are computed.

A Siamese network runs the model for each side of a pair, a contrastive loop for each view, a bag of images for each
image: what they keep for the backward pass stands side by side. Counted are the calls of the model from one backward
pass to the next, each with what it gets of the loader's batch. A call belongs to the step of a backward pass if both
are in one round of the innermost loop around the backward pass, in one function or in functions that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce

from msgspec import Struct

from preflight.program.bindings import bind, fold, is_unknown
from preflight.program.call_site import around, chain_of, evaluates, is_module
from preflight.program.checkpoints import makes_model
from preflight.program.library_parts import is_library_model
from preflight.program.loops import backwards, is_forward
from preflight.program.model_inputs import sequences_of
from preflight.program.trained import Trained, reachable, trained
from preflight.python.objects import CallRecord, Instance, has_unknown
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown

_STEPS = frozenset({"training_step", "compute_loss"})
"""Methods that Lightning and transformers' Trainer call once for each backward pass."""
_LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ANY_NUMBER = "the model runs in a loop before the gradients are computed, and how often is not known"
_SOMETIMES = "a condition that only a run decides adds passes of the model before the gradients are computed"
_Arms = tuple[tuple[ast.AST, str], ...]


class _Pass(Struct, frozen=True):
    """A call of a model within a step."""

    model: object
    """The same for all calls of one model."""
    count: Expr
    """Sequences for each sample."""
    origin: Origin
    """The call."""
    way: tuple[ast.expr, ...]
    """The calls from the step to it: a function that is read for several objects has each call once."""
    conditions: tuple[Expr, ...]
    """Those that the backward pass does not stand under."""
    arms: _Arms
    """The branches that the call is in, the outermost first."""


def sequence_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """`train.sequences_per_sample`, where the model gets anything but the loader's batch, once."""
    steps = _Steps(records, project)
    counts = [one for step in steps.all() for one in _counts(step)]
    unknown = next((one for one in counts if is_unknown(one)), None)
    if unknown is not None:
        return [bind("train.sequences_per_sample", unknown, Rank.read)]
    most = [one for one in counts if not isinstance(one, Const)]
    fixed = max((one for one in counts if isinstance(one, Const)), key=_number, default=Const(1))
    if most:
        return [bind("train.sequences_per_sample", fold(Op("max", (fixed, *most))), Rank.read)]
    return [bind("train.sequences_per_sample", fixed, Rank.read)] if _number(fixed) > 1 else []


class _Steps:
    """The passes of each step of a program."""

    def __init__(self, records: Sequence[CallRecord], project: Project) -> None:
        self.records, self.project = records, project
        self.models = _Models(records)

    def all(self) -> Iterator[list[_Pass]]:
        """The passes before each backward pass, then those of the methods that a trainer calls."""
        passes = _reached(backwards(self.records))
        start = 0
        for at, end in enumerate(self.records):
            if end in passes:
                found = (self._within(one, end) for one in self.records[start:at])
                yield [one for one in found if one is not None]
                start = at + 1
        yield from self._of_trainers({(one.path, one.function) for end in passes for one in chain_of(end)})

    def _of_trainers(self, with_backward: Collection[tuple[str, str | None]]) -> Iterable[list[_Pass]]:
        """The passes of each method that a trainer calls once, and that leaves the backward pass to it."""
        found: dict[object, list[_Pass]] = {}
        for record in self.records:
            chain = chain_of(record)
            level = next((at for at, one in enumerate(chain) if _method(one) in _STEPS), None)
            if level is None or (chain[level].path, chain[level].function) in with_backward:
                continue
            made = self._pass(record, chain, level, None)
            if made is not None:
                found.setdefault((chain[level].path, chain[level].function), []).append(made)
        return found.values()

    def _within(self, record: CallRecord, end: CallRecord) -> _Pass | None:
        """The pass that a call is; None for a call that is none, or that is not in the step of `end`."""
        if self.models.of(record) is None:
            return None
        mine, other = chain_of(record), chain_of(end)
        level = next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a is not b), None)
        if level is None or (mine[level].path, mine[level].function) != (other[level].path, other[level].function):
            return None
        return self._pass(record, mine, level, other[level])

    def _pass(
        self, record: CallRecord, chain: Sequence[CallRecord], level: int, end: CallRecord | None
    ) -> _Pass | None:
        """`end` is the call of the same function in which the step ends; None where the function is the step."""
        model = self.models.of(record)
        if model is None or any(map(evaluates, chain[level:])):
            return None
        step = self._loops(end)[:1] if end is not None else []
        loops = self._loops(chain[level])
        if step and step[0] not in loops:
            return None
        inner = loops[: loops.index(step[0])] if step else loops
        often = bool(inner) or any(self._loops(one) for one in chain[level + 1 :])
        count = Const(Unknown(_ANY_NUMBER, Cause.run_time), record.origin) if often else sequences_of(record)
        way = tuple(one.node for one in chain[level:])
        met = self._conditions(end) if end is not None else ()
        conditions = tuple(one for one in record.conditions if one not in met)
        arms = tuple(arm for one in chain[level:] for arm in self._arms(one, step))
        return _Pass(model, count or Const(1), record.origin, way, conditions, arms)

    def _conditions(self, end: CallRecord) -> Collection[Expr]:
        """Those of the statement that a call is in: the call of one of two objects has one more."""
        same = [one for one in self.records if one.node is end.node]
        return [condition for condition in end.conditions if all(condition in one.conditions for one in same)]

    def _loops(self, record: CallRecord) -> list[ast.AST]:
        """The loops and comprehensions around a call within its function, the nearest first."""
        found: list[ast.AST] = []
        for node in around(record, self.project):
            if isinstance(node, _FUNCTIONS):
                break
            if isinstance(node, _LOOPS):
                found.append(node)
        return found

    def _arms(self, record: CallRecord, step: Sequence[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
        """The branches around a call within its function and the round of the step, the outermost first."""
        found: list[tuple[ast.AST, str]] = []
        inner: ast.AST = record.node
        for node in around(record, self.project):
            if isinstance(node, _FUNCTIONS) or node in step:
                break
            if isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.Match)):
                found.append((node, _arm(node, inner)))
            inner = node
        return reversed(found)


def _arm(node: ast.AST, inner: ast.AST) -> str:
    """The name of the branch of a statement that a part of it is in."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and inner in value:
            return f"{name} {value.index(inner)}" if name in ("handlers", "cases") else name
        if value is inner:
            return name
    return ""


def _method(record: CallRecord) -> str:
    """The name of the function that a call is written in."""
    return (record.function or "").rpartition(".")[2]


def _reached(passes: Sequence[CallRecord]) -> Sequence[CallRecord]:
    return [one for one in passes if one.reached] or passes


# --- which calls run the model ----------------------------------------------------------------------------------------


class _Models:
    """The models of a program whose passes are counted."""

    def __init__(self, records: Sequence[CallRecord]) -> None:
        self.trained: Trained = trained(records)
        self.known: dict[int, bool] = {}

    def of(self, record: CallRecord) -> object | None:
        """What is the same for all calls of the model that a call runs; None for a call that runs none.

        A library's model counts wherever it is called, a class of the project where no other module calls it: the
        layers of a network are not its passes.
        """
        callee = record.callee
        if not isinstance(callee, Instance):
            return record.name if is_forward(record) and not _inside_module(record) else None
        if id(callee) not in self.known:
            self.known[id(callee)] = self._counts(callee)
        if not self.known[id(callee)] or (is_module(callee.cls) and _inside_module(record)):
            return None
        return id(callee)

    def _counts(self, callee: Instance) -> bool:
        made = callee.record
        library = callee.cls is None and made is not None and (makes_model(made) or is_library_model(made))
        if not library and not is_module(callee.cls) and not _wraps_model(callee):
            return False
        return not self.trained.objects or self.trained.has(callee)


def _wraps_model(callee: Instance) -> bool:
    """A wrapper of a model: what get_peft_model or a launcher's `prepare` gives."""
    made = [one.record for one in reachable(callee) if one is not callee and one.record is not None]
    return callee.cls is None and not callee.made_by.startswith("torch.") and any(map(makes_model, made))


def _inside_module(record: CallRecord) -> bool:
    """Whether a module of the project makes the call when it runs."""
    callers = chain_of(record)[:-1]
    return any(isinstance(one.callee, Instance) and is_module(one.callee.cls) for one in callers)


# --- together ---------------------------------------------------------------------------------------------------------


def _counts(step: Sequence[_Pass]) -> Iterator[Expr]:
    """The sequences of each model of a step for each sample."""
    for model in dict.fromkeys(one.model for one in step):
        own = list({one.way: one for one in step if one.model == model}.values())
        always = [one for one in own if not any(map(has_unknown, one.conditions))]
        sometimes = [one for one in own if one not in always]
        unknown = next((one.count for one in own if is_unknown(one.count)), None)
        if unknown is not None:
            yield unknown
        elif always and sometimes:
            yield Const(Unknown(_SOMETIMES, Cause.run_time), sometimes[0].origin)
        elif sometimes:
            yield Const(_at_most(sometimes), own[-1].origin)
        else:
            yield fold(reduce(lambda one, more: Op("+", (one, more)), map(_weighted, own)), own[-1].origin)


def _weighted(one: _Pass) -> Expr:
    """The sequences of a pass, 0 where its conditions do not hold."""
    value = one.count
    for condition in reversed(one.conditions):
        value = fold(Op("if", (condition, value, Const(0))))
    return value


def _at_most(own: Sequence[_Pass], depth: int = 0) -> int:
    """The most sequences of passes of which those in different branches of one statement exclude each other."""
    here = sum(_number(one.count) for one in own if len(one.arms) <= depth)
    branches: dict[ast.AST, dict[str, list[_Pass]]] = {}
    for one in own:
        if len(one.arms) > depth:
            node, arm = one.arms[depth]
            branches.setdefault(node, {}).setdefault(arm, []).append(one)
    return here + sum(max(_at_most(inside, depth + 1) for inside in arms.values()) for arms in branches.values())


def _number(count: Expr) -> int:
    """A count as a number; the most of one that a setting chooses."""
    if isinstance(count, Op) and count.operator in ("if", "max"):
        return max(map(_number, count.operands[count.operator == "if" :]))  # without the condition of an "if"
    return count.value if isinstance(count, Const) and isinstance(count.value, int) else 1
