"""`_target_` nodes of a configuration as calls, as `hydra.utils.instantiate` would make them.

    optimizer: {_target_: torch.optim.SGD, lr: 0.1, momentum: 0.9}      is      torch.optim.SGD(lr=0.1, momentum=0.9)

Nothing is imported or called: the target is text. The meaning of a library's call comes from `frameworks.calls`; a
class of the project is evaluated by the static evaluator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.frameworks.calls import IDENTITIES, CallFacts, read_calls
from preflight.program.own_modules import parameter_bindings
from preflight.python.objects import CallRecord
from preflight.vocabulary.budgets import NESTED_TABLES
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Span, Unknown, evaluate, origins

if TYPE_CHECKING:
    from preflight.python.interpreter import Interpreter
    from preflight.python.objects import Abstract, Instance, Key, ModuleValue

_TARGET = "_target_"
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")

_MODELS = ("model", "net", "network")
"""Nodes of a configuration that make the model."""
_LIGHTNING = ("LightningModule", "LightningDataModule")


_FACTS: CacheKind[CallFacts] = CacheKind("facts of the targets of a composition", of_many=True)


def composed(settings: Mapping[str, Expr], project: Project) -> CallFacts:
    """The facts of all targets among dotted settings; `trains` if one of them is a trainer or trains itself.

    A composition is read for its file and for every program that composes it: its facts are kept.
    """
    if not any(_target(key, expr) is not None for key, expr in settings.items()):
        return CallFacts()
    key = tuple((name, type(evaluate(expr)), expr) for name, expr in settings.items())  # 1 and True are equal
    try:
        known = _Key(key, hash(key))
    except TypeError:  # a setting has a mapping as its value
        written = _written(key)
        if written is None:
            return _facts(settings, project)
        known = _Key((written,), hash(written))
    return project.remembered.get(_FACTS, lambda: _facts(settings, project), known)


def _written(settings: tuple[Hashable, ...]) -> str | None:
    """Settings as text, with the kinds of their values, their places and the order of mappings; None if there is no
    text: Python writes no whole number of thousands of digits."""
    try:
        return repr(settings)
    except (ValueError, RecursionError):
        return None


class _Key(Struct, frozen=True):
    """All settings of a composition. Their hash is computed once, and a cache asks for it several times."""

    settings: tuple[Hashable, ...]
    hashed: int

    def __hash__(self) -> int:
        return self.hashed


def _facts(settings: Mapping[str, Expr], project: Project) -> CallFacts:
    records = records_of(settings)
    own = {node: path for node, record in records.items() if (path := _module_of(record.name, project)) is not None}
    calls = [record for node, record in records.items() if node not in own]
    objects = _Objects(settings, records, own, project) if own else None
    if objects is not None:
        calls += objects.calls()
    said = read_calls(calls, project)
    # The values include the overrides, so they do not outrank the text of the program.
    bindings = [replace(one, rank=min(one.rank, Rank.read), expr=_placed(one.expr)) for one in said.bindings]
    if not any(one.field in IDENTITIES for one in bindings):
        models = [node for node in own if node.rpartition(".")[2] in _MODELS]
        bindings += [_own_model(records[node]) for node in models]
        made = [objects.made[node] for node in models if objects is not None and node in objects.made]
        if len(made) == 1 and not any(one.field.endswith("parameters") for one in bindings):
            bindings += [replace(one, expr=_placed(one.expr)) for one in parameter_bindings(made[0])]
    return replace(said, bindings=tuple(bindings))


def _own_model(record: CallRecord) -> Binding:
    """The model is unknown: the node of the model makes an object of the project, whatever name it is given."""
    why = Unknown(
        f"the model is {record.method}, a class of the project; a dry run tells its memory", Cause.not_modelled
    )
    return Binding("model.name", Const(why, record.origin), Rank.read, record.origin)


def _placed(expr: Expr) -> Expr:
    """An expression with only the places of its operands: a user sets these, and not the computed value."""
    if not isinstance(expr, Op) or not any(True for operand in expr.operands for _ in origins(operand)):
        return expr
    return Op(expr.operator, tuple(_placed(operand) for operand in expr.operands))


def records_of(settings: Mapping[str, Expr]) -> dict[str, CallRecord]:
    """Key of a node -> its call, with the node's other keys as keyword arguments."""
    found: dict[str, CallRecord] = {}
    inside: dict[str, dict[str, Expr]] = {}
    for key, expr in settings.items():
        node, _, name = key.rpartition(".")
        inside.setdefault(node, {})[name] = expr
    for key, expr in settings.items():
        target = _target(key, expr)
        if target is not None:
            node = key.rpartition(".")[0]
            found[node] = _record(node, target, expr.origin, inside[node])
    return found


def _target(key: str, expr: Expr) -> str | None:
    """The dotted target that a setting names; None if it is no target, or not known."""
    named = isinstance(expr, Const) and key.rpartition(".")[2] == _TARGET
    target = expr.value if isinstance(expr, Const) and named else None
    return target if isinstance(target, str) and _DOTTED.fullmatch(target) else None


def _record(node: str, target: str, place: Origin | None, own: Mapping[str, Expr]) -> CallRecord:
    """The call of a node. `own` are the node's keys, without those of tables in it."""
    kwargs = {name: expr for name, expr in own.items() if not name.startswith("_")}
    origin = place or Origin("", Span(0, 0))
    call = ast.parse(f"{target}()", mode="eval").body
    return CallRecord(
        target, None, target.rpartition(".")[2], (), kwargs, {}, origin.path, call, origin, function=node or None
    )


def _module_of(target: str, project: Project) -> str | None:
    """The file of the project that defines a dotted target; None for a library."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:length])
        for path in (f"{stem}.py", f"src/{stem}.py", f"{stem}/__init__.py", f"src/{stem}/__init__.py"):
            if project.exists(path):
                return path
    return None


class _Objects:
    """Objects of the project's classes, made from the configuration, and the calls of their methods."""

    def __init__(
        self, settings: Mapping[str, Expr], records: Mapping[str, CallRecord], own: Mapping[str, str], project: Project
    ) -> None:
        from preflight.python.interpreter import Interpreter

        self.settings, self.records, self.own = settings, records, own
        self.evaluator: Interpreter = Interpreter(project)
        self.project = project
        self.made: dict[str, Instance] = {}
        """The objects of nodes that are in no other object of the project."""

    def calls(self) -> list[CallRecord]:
        """The calls that the objects make, also in hooks that a framework would call. Raises OverBudget."""
        from preflight.python.objects import Instance

        ev = self.evaluator
        for node in self.own:
            if not any(node.startswith(f"{other}.") for other in self.own if other != node):
                made = self._made(node, 0)
                if isinstance(made, Instance) and made.cls is not None:
                    self.made[node] = made
                    self._with_trainer(made)
        ev.reached = False
        for module in list(ev.modules.values()):
            self._methods(module)
        return ev.calls

    def _methods(self, module: ModuleValue) -> None:
        from preflight.python.interpreter import functions_of

        ev = self.evaluator
        for function in functions_of(module, ev, False):
            if id(function.node) not in ev.interpreted:
                ev.guarded(lambda: ev.call(function, ()))  # noqa: B023  # called before it changes

    def _made(self, node: str, depth: int) -> Abstract | None:
        """The object of one node; for a partial call, its callable."""
        from preflight.python.imports import module_attribute
        from preflight.python.module import load_module
        from preflight.python.objects import Instance

        ev, record = self.evaluator, self.records[node]
        if node not in self.own:
            return Instance(record.name, record=record, origin=record.origin)
        module = load_module(self.own[node], self.project)
        if module is None:
            return None
        value = ev.module_value(module)
        made: list[Abstract] = []

        def make() -> None:
            ev.execute_module(value)
            callee = module_attribute(ev, value, record.method)
            made.append(ev.call(callee, (), self._arguments(node, depth)) if not self._partial(node) else callee)

        ev.guarded(make)
        return made[0] if made else None

    def _partial(self, node: str) -> bool:
        flag = self.settings.get(f"{node}._partial_")
        return flag is not None and evaluate(flag) is True

    def _arguments(self, node: str, depth: int) -> dict[str, Abstract]:
        return {str(name): value for name, value in self._table(node, depth).items() if not str(name).startswith("_")}

    def _table(self, node: str, depth: int) -> dict[Key, Abstract]:
        """The values of a table. Tables in it become dictionaries, or objects if they have a target."""
        from preflight.python.objects import Container

        prefix = f"{node}." if node else ""
        found: dict[Key, Abstract] = {}
        for key, expr in self.settings.items():
            if not key.startswith(prefix) or key == node:
                continue
            name, _, deeper = key.removeprefix(prefix).partition(".")
            if not deeper and not (isinstance(expr, Op) and expr.operator == "dict"):
                found.setdefault(name, expr)
            elif deeper and name not in found:
                if depth >= NESTED_TABLES:
                    found[name] = Const(Unknown(f"it is {NESTED_TABLES.over}", Cause.budget), expr.origin)
                    continue
                inner = f"{prefix}{name}"
                made = self._made(inner, depth + 1) if inner in self.records else None
                found[name] = made if made is not None else Container("dict", self._table(inner, depth + 1))
        return found

    def _with_trainer(self, made: Instance) -> None:
        """Sets `self.trainer` of a Lightning module, with the processes of the configured trainer."""
        from preflight.python.objects import Container

        names = made.cls.external_bases if made.cls is not None else ()
        if not any(name.endswith(_LIGHTNING) for name in names):
            return
        for record in self.records.values():
            if record.method == "Trainer" and "lightning" in record.name:
                devices = record.kwargs.get("devices", Const("auto"))
                nodes = record.kwargs.get("num_nodes", Const(1))
                items: dict[Key, Abstract] = {"num_devices": devices, "num_nodes": nodes}
                items["world_size"] = _product(devices, nodes)
                made.attributes["trainer"] = Container("namespace", items, record.origin)
                return


def _product(devices: Expr, nodes: Expr) -> Expr:
    """Devices times nodes. Of a list of devices the length counts; a word ("auto") is unknown before the run."""
    value = evaluate(devices)
    if isinstance(value, tuple):
        devices = Const(len(value), devices.origin)
    elif isinstance(value, str):
        devices = Op("int", (devices,), devices.origin)
    return Op("*", (devices, nodes), devices.origin)
