"""Rows of a table: which key of a tool, or which argument of a call, is which Job field.

`calls.toml` and the tables of frameworks are made of such rows. Most settings fit a row; for others a row names a
function as `module.function`. The classes are the schema of the tables, and say what each key of a row means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field, toml

from preflight.program.arguments import Arguments, arguments_of_call
from preflight.program.bindings import bind, constant, first_origin, when
from preflight.program.call_site import evaluates
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Fact, Link, Problem, Rank
from preflight.vocabulary.spelling import (
    ATTENTION_IMPLEMENTATIONS,
    DTYPES,
    IMPLEMENTATIONS,
    IN_BACKWARD,
    OPTIMIZERS,
    PRECISIONS,
    spelled,
)
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown, Value, frozen

Plain = bool | int | float | str
RANKS = {"default": Rank.default, "text": Rank.read, "literal": Rank.literal}
SPELLINGS: Mapping[str, Mapping[str, Scalar]] = {
    "attentions": ATTENTION_IMPLEMENTATIONS,
    "dtypes": DTYPES,
    "implementations": IMPLEMENTATIONS,
    "in_backward": dict.fromkeys(IN_BACKWARD, True),
    "optimizers": OPTIMIZERS,
    "precisions": PRECISIONS,
}
"""Spellings that several tools share, by the names that tables have for them."""


class Condition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a row or a part of the table applies: if all that is stated here is true."""

    when: dict[str, Plain | list[Plain]] = {}
    """Each of these keys has this value, or one of these."""
    unless: dict[str, Plain | list[Plain]] = {}
    """None of these keys has such a value."""
    given: list[str] = []
    """One of these keys is given."""
    absent: list[str] = []
    """None of these keys is given."""
    some: list[str] = []
    """One of these keys has a value that is not false, empty or zero."""


class TableRow(Condition, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_": "is", "else_": "else"}):
    """A Job field and the source of its value; or a function for other cases."""

    field: str = ""
    key: str | list[str] = []
    """The tool's key; of several the first that is given. Keys of mappings are dotted."""
    is_: Plain | list[Plain] | None = None
    """The row applies if the key has this value, or one of these."""
    skip: list[Plain] = []
    """The row is left out if the key has one of these values."""
    only: Literal["int"] | None = None
    """The row is left out if the value has another type."""
    default: Plain | list[Plain] | None = None
    """The value if the key is not given."""
    unset: str = ""
    """The value is unknown, for this reason, if the key is not given."""
    else_: Plain | None = None
    """The value of a call without the argument, at the call's place."""
    value: Plain | list[Plain] | None = None
    """The field takes this value, at the key's place."""
    unknown: str = ""
    """The field's value cannot be known, for this reason; `{value}` in it is the key's."""
    cause: Literal["not_modelled", "run_time"] = "not_modelled"
    """Why the value cannot be known."""
    same_as: str = ""
    """The field takes the value of another field above."""
    yes: Plain | None = None
    """The field's value if the key is true ..."""
    no: Plain | None = None
    """... and if it is false."""
    spelling: str | dict[str, Plain] = {}
    """The tool's words for the Job's: `spellings` of the table or SPELLINGS by their name, or the words themselves."""
    other: Plain | None = None
    """The value of words that the spelling lacks; without it such a word is unknown."""
    only_known: bool = False
    """The row is left out if the spelling lacks the word."""
    times: int = 1
    """The key's value is multiplied by this."""
    through: str = ""
    """A function that makes the field's value of the key's."""
    rank: Literal["default", "text", "literal"] | None = None
    """The rank of the value. By default: "text" for a value with a place in a file, "default" for others."""
    do: str = ""
    """A function of (arguments, result) that adds to the result."""


class TablePart(Condition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows under one condition. With `calls`, they read the arguments of these calls."""

    rows: list[TableRow]
    calls: list[str] = []
    """Last names of the calls: of classes, functions and methods."""
    modules: list[str] = []
    """Beginnings of the calls' whole names; none: any name."""
    signature: list[str] = []
    """Names of the calls' parameters, by position."""
    training: bool = False
    """Calls that belong to an evaluation say nothing."""


class Sheet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of a table, and their common settings."""

    home: Literal["frameworks", "program"] = "frameworks"
    """Where the functions are that rows name; tables are preflight's own files."""
    assume: dict[str, Plain] = {}
    """Values that conditions use for keys that are not given."""
    spellings: dict[str, dict[str, Plain]] = {}
    """Words of the tool for those of the Job, by the names that rows have for them."""
    parts: list[TablePart] = []


class FoundSettings(Struct):
    """The result so far; `rank` as in Arguments."""

    rank: Rank | None = Rank.read
    bindings: list[Binding] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    schemes: list[Link] = field(default_factory=list)
    """Of the links, those to a file that says how the model is sharded."""

    def add(self, name: str, expr: Expr, given: bool = False) -> None:
        """A binding, unless the value is None; without a place it is a default (of a call: unless it is given)."""
        stated = first_origin(expr) is not None or (given and self.rank is None)
        if constant(expr) is not None:
            self.bindings.append(bind(name, expr, self.rank if stated else Rank.default))

    def default(self, name: str, value: Value) -> None:
        """A default of the tool."""
        self.bindings.append(bind(name, Const(value), Rank.default))

    def has(self, name: str) -> bool:
        return any(binding.field == name for binding in self.bindings)


@lru_cache(maxsize=1)
def calls() -> Sheet:
    """The table of calls, `calls.toml`."""
    return toml.decode(Path(__file__).with_name("calls.toml").read_text("utf-8"), type=Sheet)


def function(name: str, home: str = "frameworks") -> Callable[..., Any]:
    """A function by the name that a table has for it."""
    module, _, attribute = name.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"preflight.{home}.{module}"), attribute)
    return found


def read_parts(parts: Iterable[TablePart], args: Arguments, sheet: Sheet) -> FoundSettings:
    """The Job fields of arguments, by some parts of a sheet."""
    found = FoundSettings(args.rank)
    for part in parts:
        if _holds(part, args, sheet):
            for row in part.rows:
                _read_row(row, args, sheet, found)
    return found


def read_call(sheet: Sheet, record: CallRecord) -> list[Binding]:
    """Bindings of one call, without the conditions that it is made under; empty if no part reads it."""
    bindings: list[Binding] = []
    for part in sheet.parts:
        named = record.method in part.calls and (not part.modules or record.name.startswith(tuple(part.modules)))
        if named and not (part.training and evaluates(record)):
            bindings += read_parts([part], arguments_of_call(record, part.signature), sheet).bindings
    return bindings


def _holds(condition: Condition, args: Arguments, sheet: Sheet) -> bool:
    def has(key: str, wanted: Plain | list[Plain]) -> bool:
        value = args.value(key)
        return _is(sheet.assume.get(key) if value is None else value, wanted)

    return (
        all(has(key, wanted) for key, wanted in condition.when.items())
        and not any(has(key, wanted) for key, wanted in condition.unless.items())
        and (not condition.given or any(key in args for key in condition.given))
        and not any(key in args for key in condition.absent)
        and (not condition.some or any(args.some(key) for key in condition.some))
    )


def _is(value: Value, wanted: Plain | list[Plain]) -> bool:
    """Whether a value is one of those that are wanted; 1 is not `true`."""
    several = wanted if isinstance(wanted, list) else [wanted]
    return any(isinstance(value, bool) is isinstance(one, bool) and value == one for one in several)


def _read_row(row: TableRow, args: Arguments, sheet: Sheet, found: FoundSettings) -> None:
    keys = [row.key] if isinstance(row.key, str) else row.key
    key = next((one for one in keys if one in args), keys[0] if keys else "")
    value = args.value(key)
    if (row.is_ is not None and not _is(value, row.is_)) or _is(value, row.skip) or not _holds(row, args, sheet):
        return
    if row.only == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        return
    if row.do:
        function(row.do, sheet.home)(args, found)
        return
    expr = _source(row, key, args, found)
    if expr is not None:
        expr = _made(row, expr, sheet)
    if expr is None or constant(expr) is None:
        return
    if row.rank is not None:
        found.bindings.append(bind(row.field, expr, RANKS[row.rank], first_origin(expr) or args.origin(key)))
    else:
        found.add(row.field, expr, given=key in args or not _is_default(row))


def _is_default(row: TableRow) -> bool:
    """Whether the value of a row whose key is not given is the tool's default."""
    return row.value is None and not row.unknown and not row.same_as


def _source(row: TableRow, key: str, args: Arguments, found: FoundSettings) -> Expr | None:
    """The key's value, or its replacement."""
    if row.unknown:
        return Const(Unknown(row.unknown.format(value=args.value(key)), Cause[row.cause]), args.origin(key))
    if row.value is not None:
        return Const(frozen(row.value), args.origin(key))
    if row.same_as:
        return next((binding.expr for binding in found.bindings if binding.field == row.same_as), None)
    if key in args or key in args.defaults:
        return args.get(key)
    if row.else_ is not None:
        return Const(row.else_, args.origin(key))
    if row.unset:
        return Const(Unknown(row.unset, Cause.not_set), args.origin(key))
    return None if row.default is None else Const(frozen(row.default))


def spelling_of(row: TableRow, sheet: Sheet) -> Mapping[str, Scalar]:
    """Words of the tool -> words of the Job, for a row with a spelling."""
    if not isinstance(row.spelling, str):
        return row.spelling
    return sheet.spellings.get(row.spelling) or SPELLINGS[row.spelling]


def _made(row: TableRow, expr: Expr, sheet: Sheet) -> Expr | None:
    """The field's value, made of the key's."""
    if row.through:
        made: Expr | None = function(row.through, sheet.home)(expr)
        return made
    if row.yes is not None:
        return when(expr, Const(row.yes), Const(row.no))
    if row.spelling:
        words = spelling_of(row, sheet)
        if row.only_known and not (isinstance(expr, Const) and str(expr.value).lower() in words):
            return None
        expr = spelled(expr, words, row.other)
    if row.times != 1:
        return Op("*", (expr, Const(row.times)), first_origin(expr))
    return expr
