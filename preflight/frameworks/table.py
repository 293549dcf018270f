"""A tool's own settings as a table: which of its keys is which Job field, how it is spelled, what its default is.

`tables/KIND.toml` is read when a file or a command of that kind is met. Most of a tool fits rows; what does not is a
function that a row names as `module.function` of this folder. CONTRIBUTING.md ("Add a framework's keys") shows how a
table is made; the classes below are its schema, and say what each key of a row means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.shared import SPELLINGS, Found
from preflight.program.bindings import bind, constant, first_origin, when
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.spelling import spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown, Value, frozen

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

FOLDER = Path(__file__).with_name("tables")
Plain = bool | int | float | str
_CONFIG = ConfigDict(extra="forbid", frozen=True, defer_build=True)
RANKS = {"default": Rank.default, "text": Rank.read, "literal": Rank.literal}


class Condition(BaseModel):
    """When a row, or a part of the table, holds. All that is said must be true; nothing said holds always."""

    model_config = _CONFIG

    when: dict[str, Plain | list[Plain]] = {}
    """Each of these keys has this value, or one of these."""
    unless: dict[str, Plain | list[Plain]] = {}
    """None of these keys has such a value."""
    given: list[str] = []
    """One of these keys is given."""
    absent: list[str] = []
    """None of these keys is given."""
    some: list[str] = []
    """One of these keys has a value that is more than a no."""


class Row(Condition):
    """A Job field and where its value comes from; or a function that reads what no row can say."""

    field: str = ""
    key: str | list[str] = []
    """The tool's key; of several the first that is given. Keys of mappings are dotted."""
    is_: Plain | list[Plain] | None = Field(None, alias="is")
    """The row holds where the key has this value, or one of these."""
    skip: list[Plain] = []
    """Values of the key by which it says nothing."""
    only: Literal["int"] | None = None
    """A value of another type says nothing."""
    default: Plain | list[Plain] | None = None
    """The tool's value where the key is not given."""
    unset: str = ""
    """Why nobody can know the value where the key is not given."""
    value: Plain | list[Plain] | None = None
    """The field takes this value, at the key's place."""
    unknown: str = ""
    """The field's value cannot be known, for this reason; `{value}` in it is the key's."""
    same_as: str = ""
    """The field takes what another field took above."""
    yes: Plain | None = None
    """What the field is where the key is a yes ..."""
    no: Plain | None = None
    """... and where it is not."""
    spelling: str | dict[str, Plain] = {}
    """The tool's words for the Job's: a table of shared.SPELLINGS by its name, or the words themselves."""
    other: Plain | None = None
    """What a word stands for that the spelling lacks; without it such a word is unknown."""
    only_known: bool = False
    """A word that the spelling lacks says nothing."""
    times: int = 1
    """The field is so many times the key's value."""
    through: str = ""
    """A function that makes the field's value of the key's."""
    rank: Literal["default", "text", "literal"] | None = None
    """How the value stands; a value with a place as read from the text, one without as a default."""
    do: str = ""
    """A function of (arguments, what was found) that adds to what was found."""


class Part(Condition):
    """Rows that hold under one condition."""

    rows: list[Row]


class Command(BaseModel):
    """The tool's own command."""

    model_config = _CONFIG

    name: str
    trains: list[str]
    """First words of command lines that train."""
    modules: dict[str, str] = {}
    """Python modules that are this command, each with the first word that it stands for ("": its own)."""
    scripts: bool = False
    """The first words are scripts of the tool's repository, which are started by their files."""
    spawns: bool = False
    """It starts a process for each GPU by itself."""


class Call(BaseModel):
    """Calls of a program that take the tool's keys as keywords."""

    model_config = _CONFIG

    names: list[str]
    """Classes, or methods."""
    framework: str
    """What runs the steps of programs in which these names mean the tool's."""
    inserts: dict[str, str] = {}
    """Job field -> keyword, where they are not those of the tool's files."""


class Head(BaseModel):
    """What stands before the parts: how a file or a command of the tool is recognised."""

    model_config = _CONFIG

    source: str
    """The tool's release and the files that the table was read from."""
    framework: str | None = "transformers-trainer"
    """What runs the steps; absent where the file starts nothing."""
    starts: bool = True
    """Whether the file starts a run (and does not just configure another program)."""
    order: int = 50
    """Kinds of a lower number are asked first whether a file is theirs."""
    words: list[str] = []
    """A file that has none of these words is not parsed for the tool's sake."""
    all_of: list[str] = []
    """A file of the tool has all of these keys ..."""
    any_of: list[list[str]] = []
    """... one of each of these lists ..."""
    none_of: list[str] = []
    """... and none of these."""
    recognises: str = ""
    """A function of the parsed file that says more about it."""
    command: Command | None = None
    inserts: dict[str, str] = {}
    """Job field -> the key that states it, where a fix may add it to a file or a command of the tool."""
    calls: list[Call] = []


class Table(Head):
    """Everything that a tool's file says of a Job."""

    renamed: dict[str, str] = {}
    """Other names of keys -> the name that the rows use."""
    assume: dict[str, Plain] = {}
    """What conditions take a key for that is not given."""
    prepare: str = ""
    """A function of the arguments that completes them before the rows are read."""
    parts: list[Part] = []


def kinds() -> tuple[str, ...]:
    """Every kind of file or command that has a table, in the order in which they are asked."""
    return tuple(heads())


@lru_cache(maxsize=1)
def heads() -> Mapping[str, Table]:
    """The heads of all tables, which is all that is needed until one of the tools is met."""
    found = {path.stem: _taken(path.read_text("utf-8").partition("\n[[parts]]")[0]) for path in FOLDER.glob("*.toml")}
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


@lru_cache(maxsize=32)
def load(kind: str) -> Table:
    """The table of one kind."""
    return _taken((FOLDER / f"{kind}.toml").read_text("utf-8"))


def _taken(text: str) -> Table:
    """A table as it stands. The tests hold every table against the schema; to build pydantic's validators would cost
    a check more than to read all tables."""
    found = tomllib.loads(text)
    if "command" in found:
        found["command"] = Command.model_construct(**found["command"])
    found["calls"] = [Call.model_construct(**call) for call in found.get("calls", ())]
    for part in found.get("parts", ()):
        part["rows"] = [Row.model_construct(**row) for row in part["rows"]]
    found["parts"] = [Part.model_construct(**part) for part in found.get("parts", ())]
    return Table.model_construct(**found)


def keywords(framework: str) -> list[tuple[frozenset[str], Mapping[str, str]]]:
    """Names of calls, and the keywords of theirs that state a Job field: the framework's, and the data loader's."""
    from preflight.program.loaders import keywords_of_fields

    found = [(call, call.inserts or head.inserts) for head in heads().values() for call in head.calls]
    own = [(frozenset(call.names), inserts) for call, inserts in found if call.framework == framework]
    return [*own, (frozenset({"DataLoader"}), keywords_of_fields())]


def function(name: str) -> Callable[..., Any]:
    """A function that a table names; tables are preflight's own files."""
    module, _, attribute = name.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"preflight.frameworks.{module}"), attribute)
    return found


def read(kind: str, args: Arguments) -> Found:
    """What arguments of this kind say of a Job."""
    table = load(kind)
    args = _named(args, table.renamed)
    if table.prepare:
        args = function(table.prepare)(args)
    found = Found()
    for part in table.parts:
        if _holds(part, args, table):
            for row in part.rows:
                _read_row(row, args, table, found)
    return found


def _named(args: Arguments, renamed: Mapping[str, str]) -> Arguments:
    if not renamed:
        return args
    given = {renamed[name]: expr for name, expr in args.given.items() if name in renamed}
    return Arguments(given | {name: expr for name, expr in args.given.items() if name not in renamed}, None, args.empty)


def _holds(condition: Condition, args: Arguments, table: Table) -> bool:
    def has(key: str, wanted: Plain | list[Plain]) -> bool:
        value = args.value(key)
        return _is(table.assume.get(key) if value is None else value, wanted)

    return (
        all(has(key, wanted) for key, wanted in condition.when.items())
        and not any(has(key, wanted) for key, wanted in condition.unless.items())
        and (not condition.given or any(key in args for key in condition.given))
        and not any(key in args for key in condition.absent)
        and (not condition.some or any(args.some(key) for key in condition.some))
    )


def _is(value: Value, wanted: Plain | list[Plain]) -> bool:
    """Whether a value is the one, or one of those, that are wanted; 1 is no `true`."""
    several = wanted if isinstance(wanted, list) else [wanted]
    return any(isinstance(value, bool) is isinstance(one, bool) and value == one for one in several)


def _read_row(row: Row, args: Arguments, table: Table, found: Found) -> None:
    keys = [row.key] if isinstance(row.key, str) else row.key
    key = next((one for one in keys if one in args), keys[0] if keys else "")
    value = args.value(key)
    if (row.is_ is not None and not _is(value, row.is_)) or _is(value, row.skip) or not _holds(row, args, table):
        return
    if row.only == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        return
    if row.do:
        function(row.do)(args, found)
        return
    expr = _source(row, key, args, found)
    if expr is not None:
        expr = _made(row, expr)
    if expr is None or constant(expr) is None:
        return
    if row.rank is not None:
        found.bindings.append(bind(row.field, expr, RANKS[row.rank]))
    else:
        found.add(row.field, expr)


def _source(row: Row, key: str, args: Arguments, found: Found) -> Expr | None:
    """Where the value comes from."""
    if row.unknown:
        return Const(Unknown(row.unknown.format(value=args.value(key)), Cause.not_modelled), args.origin(key))
    if row.value is not None:
        return Const(frozen(row.value), args.origin(key))
    if row.same_as:
        return next((binding.expr for binding in found.bindings if binding.field == row.same_as), None)
    if key in args or key in args.defaults:
        return args.get(key)
    if row.unset:
        return Const(Unknown(row.unset, Cause.not_set), args.origin(key))
    return None if row.default is None else Const(frozen(row.default))


def _made(row: Row, expr: Expr) -> Expr | None:
    """What becomes of it."""
    if row.through:
        made: Expr | None = function(row.through)(expr)
        return made
    if row.yes is not None:
        return when(expr, Const(row.yes), Const(row.no))
    if row.spelling:
        words: Mapping[str, Scalar] = SPELLINGS[row.spelling]() if isinstance(row.spelling, str) else row.spelling
        if row.only_known and not (isinstance(expr, Const) and str(expr.value).lower() in words):
            return None
        expr = spelled(expr, words, row.other)
    if row.times != 1:
        return Op("*", (expr, Const(row.times)), first_origin(expr))
    return expr
