"""Abstract values: Python objects as the static evaluator knows them, without running the program.

Numbers and strings are `values.Expr`; other objects have the classes of this file. `to_expr` turns any into an `Expr`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import count
from types import NoneType
from typing import TypeAlias, TypeGuard, Union

from msgspec import Struct, field

from preflight.python.module import Module
from preflight.vocabulary.budgets import EXPRESSION_NODES
from preflight.vocabulary.reading import ParameterKind
from preflight.vocabulary.values import (
    Cause,
    Const,
    Expr,
    Op,
    Origin,
    Ref,
    Unknown,
    Value,
    parts,
    unknown,
)

Key: TypeAlias = Union[bool, int, float, str, "tuple[Key, ...]", None]

MAX_NESTED = 8
"""Dictionaries within each other that are taken apart: settings written by people stay below four."""
MAX_LEVELS = 20
"""Containers and choices within each other that an expression has."""


def openness(open_: bool) -> dict[Key, bool]:
    """The flags of a container; `open_`: it may have items that are not known."""
    return {"open": True} if open_ else {}


class Container(Struct, eq=False):
    """A list, tuple, set, dict or attribute namespace. Lists have the keys 0, 1, ...

    An open one may have items that are not known.
    """

    kind: str
    """list, tuple, set, dict, namespace"""
    items: dict[Key, Abstract] = field(default_factory=dict)
    origin: Origin | None = None
    flags: dict[Key, bool] = field(default_factory=dict)
    serial: int = field(default_factory=count().__next__)
    """Rises with each container: those made in a branch have higher numbers than those before it."""
    count: Expr | None = None
    """How many items an open one has, all like its first, where that is known."""
    attributes_of: Instance | None = None
    """The object whose attributes these are: `vars(object)`."""
    size: int | None = None
    """Bytes that it takes with all in it, where values like it were read from a file."""
    repeats: Expr | None = None
    """How many items like its only one it has, where a setting decides that: `[Block() for _ in range(args.depth)]`."""

    @property
    def open(self) -> bool:
        return self.flags.get("open", False) or self.superset

    @property
    def superset(self) -> bool:
        """It has at most the items that are known: a filter that depends on parameters may drop some."""
        return self.flags.get("superset", False) and not self.flags.get("open", False)

    @property
    def is_sequence(self) -> bool:
        return self.kind in ("list", "tuple", "set")


class Instance(Struct, eq=False):
    """An object: of a class of the project (`cls`), or made by a call to a library (`made_by`, qualified)."""

    made_by: str
    cls: ClassValue | None = None
    attributes: dict[Key, Abstract] = field(default_factory=dict)
    record: CallRecord | None = None
    origin: Origin | None = None
    state: dict[str, object] = field(default_factory=dict)
    """Data of hooks about it."""


ARRAY = "array"
"""The key of an object's state that says the shape and type of its values: it is an array, whose truth they decide."""
CHANGED = "changed"
"""The key of an object's state if the program changes a part of it that is not known: which part, or to what."""
BASE = "base"
"""The key of an object's state that has the call which makes the part of it that a library's class has."""


class External(Struct, eq=False):
    """An object of a library, by its dotted name: torch.optim.AdamW. Built-ins have their bare name."""

    name: str
    origin: Origin | None = None


class Attribute(Struct, eq=False):
    """An attribute that is not known: a method, or a value that the program does not set."""

    receiver: Abstract
    name: str
    origin: Origin | None = None
    key: Abstract | None = None
    """Of an item of a library's mapping (`CONFIG_MAPPING[name]`): what it is looked up by."""


class FunctionValue(Struct, eq=False):
    """A function or lambda of the project; `bound_args` and `bound_kwargs` by functools.partial."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    frame: Frame
    defaults: dict[str, Abstract] = field(default_factory=dict)
    decorators: tuple[Abstract, ...] = ()
    owner: ClassValue | None = None
    self_value: Abstract | None = None
    bound_args: tuple[Abstract, ...] = ()
    bound_kwargs: dict[str, Abstract] = field(default_factory=dict)
    setter: FunctionValue | None = None
    """Of a property: the function that an assignment calls."""


class ClassValue(Struct, eq=False):
    """A class of the project; `annotations` in order of definition, for dataclasses."""

    name: str
    node: ast.ClassDef
    module: Module
    attributes: dict[Key, Abstract]
    bases: tuple[Abstract, ...] = ()
    decorators: tuple[Abstract, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    annotation_origins: dict[str, Origin] = field(default_factory=dict)

    def lineage(self, _depth: int = 0) -> Iterator[ClassValue]:
        """The class and its bases within the project, nearest first."""
        yield self
        for base in self.bases:
            if isinstance(base, ClassValue) and _depth < 10:
                yield from base.lineage(_depth + 1)

    @property
    def external_bases(self) -> tuple[str, ...]:
        return tuple(base.name for cls in self.lineage() for base in cls.bases if isinstance(base, External))


class ModuleValue(Struct, eq=False):
    """A module of the project. It is interpreted when a name of it is looked up."""

    module: Module
    frame: Frame
    state: str = "new"
    """new, running, done"""


class Config(Struct, eq=False):
    """A configuration object. Its keys are parameters: `config.a.b` is Ref("a.b") unless `known` has a value for it."""

    prefix: str = ""
    kind: ParameterKind = "hydra"
    known: dict[Key, Abstract] = field(default_factory=dict)
    origin: Origin | None = None
    state: dict[str, object] = field(default_factory=dict)


class Either(Struct, eq=False):
    """One of two objects; a condition that is not known decides which."""

    condition: Expr
    then: Abstract
    otherwise: Abstract


class Lazy(Struct, eq=False):
    """A name of `from module import name` that was not looked up yet."""

    module: ModuleValue
    name: str
    origin: Origin | None = None


Abstract: TypeAlias = Union[
    Const,
    Ref,
    Op,
    Container,
    Instance,
    External,
    Attribute,
    FunctionValue,
    ClassValue,
    ModuleValue,
    Config,
    Either,
    Lazy,
]


class Frame(Struct, eq=False):
    """A scope. `returns` are (path condition, value) of the returns met so far."""

    variables: dict[Key, Abstract]
    module: Module
    parent: Frame | None = None
    function: str | None = None
    returns: list[tuple[Expr | None, Abstract]] = field(default_factory=list)
    globals_: dict[Key, Abstract] = field(default_factory=dict)
    redirected: dict[str, dict[Key, Abstract]] = field(default_factory=dict)
    """Names declared global or nonlocal, and the scope they live in."""
    owner: ClassValue | None = None
    """The class whose body this is."""
    owner_class: ClassValue | None = None
    self_value: Abstract | None = None
    """For methods: their class and object."""


def is_object(value: Instance) -> bool:
    """Whether it surely is an object, not None or a number: a class made it, or a function of a library of whose
    result something is known."""
    name = value.made_by.rpartition(".")[2]
    return value.cls is not None or bool(value.state) or name[:1].isupper() or name.startswith("from_")


def is_expr(value: Abstract) -> bool:
    return isinstance(value, (Const, Ref, Op))


def leaves(value: Container, _depth: int = 0) -> Iterator[tuple[str, Abstract]]:
    """The values of nested dictionaries, by dotted keys."""
    for key, inner in value.items.items():
        if isinstance(inner, Container) and inner.kind == "dict" and _depth < MAX_NESTED:
            yield from ((f"{key}.{name}", leaf) for name, leaf in leaves(inner, _depth + 1))
        else:
            yield str(key), inner


def to_expr(value: Abstract, _depth: int = 0) -> Expr:
    """Any abstract value as an expression. A library's name becomes its dotted name as a string ("torch.bfloat16"),
    a sequence a "tuple" operation, a dict of constants a constant mapping; other objects are unknown.
    """
    if isinstance(value, (Const, Ref, Op)):
        return value
    if _depth > MAX_LEVELS:
        return unknown("it is nested too deeply", cause=Cause.budget)
    if isinstance(value, Container):
        return _container_expr(value, _depth + 1)
    if isinstance(value, External):
        return Const(value.name, value.origin)
    if isinstance(value, Config):
        return Ref(value.prefix, value.origin) if value.prefix else unknown("it is a whole configuration", value.origin)
    if isinstance(value, Either):
        return _either_expr(value, _depth + 1)
    if isinstance(value, Instance):
        return unknown(f"it is an object made by {value.made_by}()", value.origin)
    if isinstance(value, Attribute):
        return unknown(f"the attribute .{value.name} is only known when the program runs", value.origin, Cause.run_time)
    return unknown("it is a function, class or module")


def _either_expr(value: Either, depth: int) -> Expr:
    """One expression of either object; its parts are shared as the objects are. Whoever walks through it may take each
    of its ways, so that their number is within a budget, too."""
    made: dict[int, tuple[Expr, int, int]] = {}  # with its levels and its ways
    for side in sides(value):
        if not isinstance(side, Either):
            made[id(side)] = to_expr(side, depth), 0, 1
            continue
        (then, high, many), (otherwise, too, more) = made[id(side.then)], made[id(side.otherwise)]
        levels, ways = 1 + max(high, too), many + more
        if ways > EXPRESSION_NODES:
            return unknown(f"the expression is {EXPRESSION_NODES.over}", cause=Cause.budget)
        if levels + depth > MAX_LEVELS:
            return unknown("it is nested too deeply", cause=Cause.budget)
        made[id(side)] = Op("if", (side.condition, then, otherwise)), levels, ways
    return made[id(value)][0]


def _container_expr(value: Container, depth: int) -> Expr:
    if value.open:
        return unknown("not all of its items are known", value.origin)
    if value.is_sequence:
        return Op("tuple", tuple(to_expr(item, depth) for item in value.items.values()), value.origin)
    constants: dict[str, Value] = {}
    for key, item in value.items.items():
        expr = to_expr(item, depth)
        if not isinstance(expr, Const) or isinstance(expr.value, Unknown):
            return unknown("not all values of the mapping are constant", value.origin)
        constants[key if isinstance(key, str) else str(key)] = expr.value
    return Const(constants, value.origin)


def is_plain_key(value: object) -> TypeGuard[Key]:
    """Whether a constant may be the key of a container."""
    return all(map(is_plain_key, value)) if isinstance(value, tuple) else isinstance(value, (str, int, float, NoneType))


def from_value(value: Value, origin: Origin | None = None) -> Abstract:
    """A constant as an abstract value; tuples and mappings become containers."""
    if isinstance(value, tuple):
        return Container("list", {i: from_value(v, origin) for i, v in enumerate(value)}, origin)
    if isinstance(value, dict):
        return Container("dict", {k: from_value(v, origin) for k, v in value.items()}, origin)
    return Const(value, origin)


def sequence(
    values: list[Abstract], kind: str = "list", origin: Origin | None = None, open_: bool = False
) -> Container:
    """A list, tuple or set of these values."""
    return Container(kind, dict(enumerate(values)), origin, openness(open_))


def namespace(value: Abstract, _depth: int = 0) -> Abstract:
    """A dict whose keys are attributes too, all the way down."""
    if isinstance(value, Container) and not value.is_sequence and _depth < 20:
        items = {key: namespace(item, _depth + 1) for key, item in value.items.items()}
        return Container("namespace", items, value.origin, dict(value.flags))
    return value


def open_container(kind: str = "list", origin: Origin | None = None) -> Container:
    """A container whose items are not known."""
    return Container(kind, {}, origin, openness(True))


def sides(value: Abstract) -> list[Abstract]:
    """A value and all that it chooses between, each once and behind what it chooses between. Branches share objects: a
    value of many branches has few objects and a great number of ways to them."""
    found: list[Abstract] = []
    seen: set[int] = set()
    left = [(value, False)]
    while left:
        one, inner_found = left.pop()
        if inner_found:
            found.append(one)
        elif id(one) not in seen:
            seen.add(id(one))
            left.append((one, True))
            left += [(one.otherwise, False), (one.then, False)] if isinstance(one, Either) else []
    return found


def alternatives(value: Abstract) -> Iterator[Abstract]:
    """The objects that a value may be: several where a condition decides, each once."""
    return (one for one in sides(value) if not isinstance(one, Either))


def is_children(value: Abstract) -> bool:
    """Whether it is what `model.children()` gives of a model that is known by its maker alone."""
    return isinstance(value, Instance) and value.record is not None and value.record.method == "children"


def made_by(value: Abstract) -> str | None:
    """The qualified name of an object's class or maker: "torch.optim.AdamW", "models.Net"; None if unknown."""
    for one in alternatives(value):
        if isinstance(one, Instance):
            return one.made_by
        if isinstance(one, Attribute):
            inner = made_by(one.receiver)
            return f"{inner}.{one.name}" if inner else None
        if isinstance(one, External):
            return one.name
    return None


def changes_in_loop(origin: Origin | None = None) -> Const:
    """A value that the iterations of a loop change."""
    return unknown("it changes in a loop", origin, Cause.run_time)


COUNTS = "it counts the rounds of a loop"


def counted_in_loop(value: Abstract, origin: Origin | None = None) -> Const:
    """A value that the rounds of a loop over `value` change; a number where that is a range."""
    ranges = isinstance(value, Instance) and value.made_by == "range"
    return unknown(COUNTS, origin, Cause.run_time) if ranges else changes_in_loop(origin)


def is_within(operand: Expr, origin: Origin) -> bool:
    """Whether an operand is a literal of the expression's own text."""
    place = operand.origin if isinstance(operand, Const) else None
    inside = place is not None and origin.span.start <= place.span.start and place.span.end <= origin.span.end
    return inside and place is not None and place.path == origin.path


def has_unknown(expr: Expr) -> bool:
    """Whether a part of it is unknown, whatever the values of its names."""
    return any(isinstance(part, Const) and isinstance(part.value, Unknown) for part in parts(expr))


def kinds_of(value: object) -> tuple[str, ...]:
    """The qualified names of an object's possible makers."""
    if value is None:
        return ()
    return tuple(one.made_by for one in alternatives(value) if isinstance(one, Instance))  # type: ignore[arg-type]


# What the evaluator finds: the calls that a program makes, and the exceptions that it handles.


class CallRecord(Struct, eq=False):
    """One call that the program makes, with arguments as expressions over its parameters.

    `name` is qualified through imports ("torch.utils.data.DataLoader", "transformers.TrainingArguments"); a method of
    an object is written as in the text ("model.generate"), `receiver` is then what the object was made by, if known
    ("torch.optim.AdamW"), and `method` its last name. The name of the project's own code is "module.function".
    """

    name: str
    receiver: str | None
    method: str
    args: tuple[Expr, ...]
    kwargs: Mapping[str, Expr]
    keyword_origins: Mapping[str, Origin]
    """The place of each keyword argument's own text in the call (its value's origin may be elsewhere)."""
    path: str
    node: ast.expr
    origin: Origin
    function: str | None = None
    caller: CallRecord | None = None
    """The enclosing function, "Class.method" for methods, and the call that entered it; None at the top level."""
    number: int = 0
    callers_again: dict[int, tuple[CallRecord, int]] = field(default_factory=dict)
    """Its number in the order of all calls; and by identity, further calls of the function that make it again."""
    conditions: tuple[Expr, ...] = ()
    conditions_again: list[tuple[Expr, ...]] = field(default_factory=list)
    """Other conditions that the same call with the same arguments was made under later."""
    in_loop: bool = False
    in_try: tuple[str, ...] = ()
    """Names of the exceptions that an enclosing `except` catches ("*" for a bare one)."""
    contexts: tuple[CallRecord, ...] = ()
    """Calls whose `with` block (or decorator) this call is in, outermost first."""
    reached: bool = True
    """False: found in a function that nothing calls, which was read with unknown parameters."""
    complete: bool = True
    """False: further arguments come from `*args` or `**kwargs` that are not known."""
    more: bool = False
    """A mapping is spread that may have any key: what is not given may be in it."""
    arguments: tuple[Abstract, ...] = ()
    keywords: Mapping[str, Abstract] = field(default_factory=dict)
    """The arguments as objects, where an expression says too little (a model, an optimizer)."""
    spread: tuple[Abstract, ...] = ()
    """What `*args` spreads of which the items are not known."""
    receiver_object: Abstract | None = None
    callee: Abstract | None = None
    value: Abstract | None = None
    scope: Mapping[Key, Abstract] = field(default_factory=dict)
    """The return value of the call, None until it returned; of a backward pass, the names that can be seen there."""

    @property
    def qualified(self) -> str:
        """`name`, or what the receiver was made by and the method: "torch.optim.AdamW.step"."""
        return f"{self.receiver}.{self.method}" if self.receiver else self.name

    def says_the_same(self, other: CallRecord) -> bool:
        """Whether another call of the same expression has the same callee and arguments, of objects of one kind."""
        same = self.name == other.name and self.args == other.args and self.kwargs == other.kwargs
        same = same and self.receiver == other.receiver
        return same and self.arguments == other.arguments

    def argument(self, name: str, position: int | None = None) -> Expr | None:
        """An argument by keyword or by position (0-based); None where it is not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None

    def object(self, name: str, position: int | None = None) -> Abstract | None:
        """As `argument`, as an object."""
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.arguments):
            return self.arguments[position]
        return None


class TryRecord(Struct, eq=False):
    """A `try` that was entered: `calls` are those made in its body, functions called from it included."""

    node: ast.Try
    path: str
    function: str | None
    handlers: tuple[tuple[tuple[str, ...], ast.ExceptHandler], ...]
    calls: tuple[CallRecord, ...] = ()
    reached: bool = True
