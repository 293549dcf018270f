"""Values of settings as expressions: a constant, a reference, an operation, or unknown; each with its place in a file.

Dialects produce `Expr`, `preflight.study` substitutes and evaluates them. Nothing here runs anyone's code: an operation
outside `OPERATIONS` is unknown, and so is one that fails.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from typing import TypeAlias, Union

from msgspec import Struct
from msgspec.structs import replace

from preflight.vocabulary.budgets import VALUE_LENGTH


class Cause(Enum):
    """Why a value is unknown. Code decides by the cause and by the fields of an `Unknown`, never by its words."""

    not_set = "not-set"
    """No file states it, and it has no default. The user can state it."""
    run_time = "decided-at-run-time"
    """The job decides it when it runs: by the machine, the data, the environment or the state of a loop."""
    not_read = "not-read"
    """It is written down in a construct or a syntax that the reader does not follow."""
    out_of_project = "out-of-project"
    """It is defined in code that is not among the files read: a library's object, a resolver of the program's own."""
    file_not_found = "file-not-found"
    """A file that the user names is not there, or cannot be read."""
    invalid = "invalid-value"
    """The text is no valid value of the field, or of the tool that reads it."""
    budget = "budget"
    """It is larger, longer or more deeply nested than the reader follows. A hostile file must not stop the reader."""
    model_unknown = "model-not-known"
    """No model of that name or architecture is in the catalogue, and no file describes its dimensions."""
    no_law = "no-law"
    """The model is known and has no memory law: none is shipped, and none can be made by tracing."""
    cannot_trace = "cannot-trace"
    """No memory law is shipped. Tracing would make one: torch is not there, tracing is off, or it failed."""
    not_modelled = "not-modelled"
    """A setting that the estimate does not cover, alone or with this model."""
    not_possible = "not-possible"
    """A combination of settings that the training tool itself refuses, or that cannot be computed."""
    time_limit = "time-limit"
    """It was not looked at before the time limit of the run was over."""


class Unknown(Struct, frozen=True):
    """A value that cannot be known statically, and why.

    `words` say why to the user: they complete "unknown: ...". `fields` are the Job fields that would have to be stated.
    """

    words: str
    cause: Cause = Cause.not_read
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"unknown ({self.words})"

    def __bool__(self) -> bool:  # an unknown must be tested for, never branched on by accident
        raise TypeError(f"the truth of an unknown value was asked for ({self.words})")


def missing(field: str, about: str = "") -> Unknown:
    """A Job field that no file states; `about` follows its name in the words."""
    return Unknown(f"{field} is not known{about and f' ({about})'}", Cause.not_set, (field,))


Scalar: TypeAlias = Union[bool, int, float, str, None]
Value: TypeAlias = Union[Scalar, Unknown, "tuple[Value, ...]", "Mapping[str, Value]"]


def brief(value: object, most: int = 60) -> str:
    """A value for a message, never longer than `most` characters, whatever it is."""
    try:
        text = repr(_without_unknown(value))
    except ValueError:  # Python writes no whole number of more than 4,300 digits (sys.get_int_max_str_digits)
        text = "a number of thousands of digits"
    except RecursionError:
        text = "a value that is nested too deeply"
    return text if len(text) <= most else text[: most - 3] + "..."


class _Gap:
    """Stands for an unknown value in a text for the user."""

    def __repr__(self) -> str:
        return "unknown"


def _without_unknown(value: object) -> object:
    """The value with a word in the place of what is unknown in it."""
    if isinstance(value, Unknown):
        return _Gap()
    if isinstance(value, tuple):
        return tuple(_without_unknown(item) for item in value)
    if isinstance(value, Mapping):
        return {key: _without_unknown(item) for key, item in value.items()}
    return value


class Span(Struct, frozen=True):
    """Half-open range of offsets into a document's text, in code points."""

    start: int
    end: int


Route: TypeAlias = "tuple[str | int, ...]"


class Origin(Struct, frozen=True):
    """Where a value is written: the file, the span of the value's own text, and how to reach it by structure.

    `route` is the path of keys and indices in a YAML or JSON document (None in Python and bash, where the span is all
    there is). `via` lists further places that the value passed through (interpolations, defaults lists, `${args}`).
    `editable` is False where the text at `span` is not the value alone (a computed default, a macro). `unless`: the
    value is the default of a variable that whoever starts the file may set: X of `${X:-d}`.
    """

    path: str
    span: Span
    route: Route | None = None
    via: tuple[Origin, ...] = ()
    editable: bool = True
    unless: str = ""


class Const(Struct, frozen=True):
    """A literal (or `Unknown`), with the place of its text."""

    value: Value
    origin: Origin | None = None


class Ref(Struct, frozen=True):
    """A name to be found in the environment: a program's parameter, a config key, or an axis of the search space."""

    name: str
    origin: Origin | None = None


class Op(Struct, frozen=True):
    """An operation of `OPERATIONS` (or "if": condition, then, else) on other expressions."""

    operator: str
    operands: tuple[Expr, ...]
    origin: Origin | None = None

    def __eq__(self, other: object) -> bool:
        """As the fields are. Two parts that stand in several places are compared once, as `parts` has it."""
        if not isinstance(other, Op):
            return NotImplemented
        compared: set[tuple[int, int]] = set()
        left: list[tuple[Expr, Expr]] = [(self, other)]
        while left:
            one, two = left.pop()
            if one is two:
                continue
            if not (isinstance(one, Op) and isinstance(two, Op)):
                if one != two:
                    return False
                continue
            if (id(one), id(two)) in compared:
                continue
            compared.add((id(one), id(two)))
            if one.operator != two.operator or len(one.operands) != len(two.operands) or one.origin != two.origin:
                return False
            left += zip(one.operands, two.operands, strict=True)
        return True

    def __hash__(self) -> int:
        return hash((self.operator, self.operands, self.origin))


Expr: TypeAlias = Union[Const, Ref, Op]
Environment: TypeAlias = "Mapping[str, Expr]"


def unknown(words: str, origin: Origin | None = None, cause: Cause = Cause.not_read) -> Const:
    """An expression whose value cannot be known; where no cause is named, the reader does not follow it."""
    return Const(Unknown(words, cause), origin)


def _get(container: object, key: object, default: object = KeyError) -> object:
    if isinstance(container, Mapping):
        if key in container:
            return container[key]
    elif isinstance(container, (tuple, str)) and isinstance(key, int) and -len(container) <= key < len(container):
        return container[key]
    if default is KeyError:
        raise KeyError(key)
    return default


def _power(base: float, exponent: float) -> object:
    if abs(exponent) > 256 or abs(base) > 2**64:  # a hostile `9**9**9` must not hang the reader
        raise OverflowError
    return base**exponent


def _add(x: object, y: object) -> object:
    if isinstance(x, (str, tuple)) and isinstance(y, (str, tuple)) and len(x) + len(y) > VALUE_LENGTH:
        raise OverflowError("the result is too long")
    return operator.add(x, y)


def _times(x: object, y: object) -> object:
    for one, count in ((x, y), (y, x)):
        if isinstance(one, (str, tuple)) and isinstance(count, int) and len(one) * count > VALUE_LENGTH:
            raise OverflowError("the result is too long")
    return operator.mul(x, y)


def _modulo(x: object, y: object) -> object:
    if isinstance(x, str):  # a format: "%999999999d" % 1
        raise TypeError("a text is not formatted statically")
    return operator.mod(x, y)


def _replace(text: str, old: str, new: str) -> str:
    if (text.count(old) + 1) * len(new) + len(text) > VALUE_LENGTH:
        raise OverflowError("the result is too long")
    return text.replace(old, new)


def _to_int(x: object, *rest: int) -> int:
    return int(x, *rest) if isinstance(x, str) else int(x)  # type: ignore[call-overload]


OPERATIONS: dict[str, Callable[..., object]] = {
    "+": _add, "-": operator.sub, "*": _times, "/": operator.truediv, "//": operator.floordiv,
    "%": _modulo, "**": _power, "neg": operator.neg,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda x, xs: x in xs, "not in": lambda x, xs: x not in xs, "is": lambda x, y: x is y or x == y,
    "is not": lambda x, y: not (x is y or x == y), "not": operator.not_,
    "and": lambda *xs: all(xs) and xs[-1], "or": lambda *xs: next((x for x in xs if x), xs[-1]),
    "min": min, "max": max, "sum": sum, "abs": abs, "round": round, "len": len, "any": any, "all": all,
    "int": _to_int, "float": float, "str": str, "bool": bool,
    "ceil": math.ceil, "floor": math.floor, "get": _get,
    "lower": str.lower, "upper": str.upper, "strip": str.strip, "startswith": str.startswith,
    "endswith": str.endswith, "split": lambda s, *a: tuple(s.split(*a)), "replace": _replace,
    "concat": lambda *xs: "".join(str(x) for x in xs), "tuple": lambda *xs: tuple(xs),
    "dict": lambda *xs: dict(zip(xs[::2], xs[1::2], strict=True)),
}  # fmt: skip


_Known: TypeAlias = "dict[int, tuple[Op, Value]]"
"""Values of parts by their identity. Each part is kept with its value, so that no other one gets its identity."""


def evaluate(expr: Expr, env: Environment | None = None, _depth: int = 0, _known: _Known | None = None) -> Value:
    """The value of `expr` where names mean what `env` says; `Unknown` where it depends on something unknown.

    A part that stands in several places is evaluated once: see `parts`.
    `and`, `or` and `if` decide as Python does, so an unknown in a branch not taken does no harm.
    """
    if _depth > 200:
        return Unknown("it refers to itself", Cause.not_possible)
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Ref):
        found = env.get(expr.name) if env is not None else None
        if found is None:
            return Unknown(f"{expr.name} is not set in the files read", Cause.not_set)
        return found.value if isinstance(found, Const) else evaluate(found, env, _depth + 1, _known)
    known: _Known = {} if _known is None else _known
    if id(expr) not in known:
        known[id(expr)] = expr, _evaluate_op(expr, env, _depth + 1, known)
    return known[id(expr)][1]


def _evaluate_op(expr: Op, env: Environment | None, depth: int, known: _Known) -> Value:
    if expr.operator == "if":
        test = evaluate(expr.operands[0], env, depth, known)
        if isinstance(test, Unknown):
            yes, no = (evaluate(operand, env, depth, known) for operand in expr.operands[1:])
            return yes if not isinstance(yes, Unknown) and yes == no else test
        return evaluate(expr.operands[1] if test else expr.operands[2], env, depth, known)
    if expr.operator in ("and", "or"):
        last: Value = None
        for operand in expr.operands:
            last = evaluate(operand, env, depth, known)
            if isinstance(last, Unknown) or bool(last) == (expr.operator == "or"):
                return last
        return last
    values = [evaluate(operand, env, depth, known) for operand in expr.operands]
    for value in values:
        if isinstance(value, Unknown):
            return value
    function = OPERATIONS.get(expr.operator)
    if function is None:
        return Unknown(f"{expr.operator}() is not evaluated statically", Cause.not_read)
    try:
        return function(*values)  # type: ignore[return-value]
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return Unknown(f"{expr.operator} of {', '.join(brief(one, 30) for one in values)} has no value", Cause.invalid)


def substitute(expr: Expr, env: Environment, _depth: int = 0, _known: dict[int, tuple[Op, Expr]] | None = None) -> Expr:
    """`expr` with every name that `env` knows replaced by its value. A part that stands in several places is replaced
    once, and stays one: see `parts`."""
    if _depth > 200:
        return unknown("it refers to itself", expr.origin, Cause.not_possible)
    known = {} if _known is None else _known
    if isinstance(expr, Ref):
        return substitute(env[expr.name], env, _depth + 1, known) if expr.name in env else expr
    if not isinstance(expr, Op):
        return expr
    if id(expr) not in known:
        operands = tuple(substitute(o, env, _depth + 1, known) for o in expr.operands)
        same = all(new is old for new, old in zip(operands, expr.operands, strict=True))
        known[id(expr)] = expr, expr if same else Op(expr.operator, operands, expr.origin)
    return known[id(expr)][1]


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and what it is made of, the outermost first. A part that stands in several places is there once:
    branches that nobody decides share parts, and walking through each would double the work with every branch."""
    asked: set[int] = set()
    left = [expr]
    while left:
        one = left.pop()
        if isinstance(one, Op):
            if id(one) in asked:
                continue
            asked.add(id(one))
            left += reversed(one.operands)
        yield one


def names(expr: Expr) -> Iterator[str]:
    """Every name that `expr` still refers to, in the order of reading."""
    if isinstance(expr, Const):  # most are, and each is asked about many times
        return iter(())
    return (one.name for one in parts(expr) if isinstance(one, Ref))


def has_more_parts(expr: Expr, most: int) -> bool:
    """Whether an expression has more parts than `most`; one that stands in several places counts in each."""
    left = [expr]
    for _ in range(most):
        if not left:
            return False
        one = left.pop()
        if isinstance(one, Op):
            left += one.operands
    return bool(left)


def origins(expr: Expr) -> Iterator[Origin]:
    """Every place that `expr` was written at, the outermost first."""
    if isinstance(expr, Const):
        return iter(() if expr.origin is None else (expr.origin,))
    return (one.origin for one in parts(expr) if one.origin is not None)


def shape(expr: Expr) -> tuple[tuple[object, ...], ...]:
    """An expression without the places of its parts: each different part once, those that it is made of first."""
    if isinstance(expr, Const):  # most are
        return (("const", repr(expr.value)),)
    rows: dict[tuple[object, ...], int] = {}
    known: dict[int, int] = {}
    left: list[Expr] = [expr]
    while left:
        one = left[-1]
        row: tuple[object, ...]
        if isinstance(one, Op):
            inner = [operand for operand in one.operands if id(operand) not in known]
            if inner:
                left += inner
                continue
            row = ("op", one.operator, *(known[id(operand)] for operand in one.operands))
        else:
            row = ("const", repr(one.value)) if isinstance(one, Const) else ("ref", one.name)
        known[id(one)] = rows.setdefault(row, len(rows))
        left.pop()
    return tuple(rows)


# --- domains of a search space's axes -------------------------------------------------------------------------------


class Choices(Struct, frozen=True):
    """One of some listed values; `origins` has the place of each (or is empty)."""

    values: tuple[Value, ...]
    origins: tuple[Origin | None, ...] = ()


class Range(Struct, frozen=True):
    """Numbers from `low` to `high`, both included; `step` None means continuous (the count is unbounded).

    `low_origin` and `high_origin` are the places of the two bounds.
    """

    low: float
    high: float
    step: float | None = None
    integer: bool = True
    log: bool = False
    low_origin: Origin | None = None
    high_origin: Origin | None = None

    def size(self) -> int | None:
        """How many values, None where it is continuous, or where a bound is no finite number."""
        if self.step is None or not self.step:
            return None
        steps = (self.high - self.low) / self.step
        return max(0, math.floor(steps + 1e-9) + 1) if math.isfinite(steps) else None


class Unbounded(Struct, frozen=True):
    """A distribution with no finite worst case (normal, log_normal, ...)."""

    kind: str


Domain: TypeAlias = Union[Choices, Range, Unbounded]


class Axis(Struct, frozen=True):
    """A dimension of a search space: its name in expressions, and its values."""

    name: str
    domain: Domain
    origin: Origin | None = None
    fields: tuple[str, ...] = ()
    """Job fields that depend on it; filled in by `preflight.study`."""


def without_places(domain: Domain) -> Hashable:
    """What a domain says."""
    if isinstance(domain, Choices):
        return "choices", repr(domain.values)
    # as text: 1 and 1.0 are equal, and a field may refuse one of them
    return repr(replace(domain, low_origin=None, high_origin=None) if isinstance(domain, Range) else domain)


def frozen(value: object) -> Value:
    """A JSON value with its lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    return value  # type: ignore[return-value]


def thawed(value: object) -> object:
    """The same with tuples as lists and mappings as dictionaries, as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [thawed(item) for item in value]
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return value
