"""Tables of tools: which of a tool's keys is which Job field, with its spellings and its default.

`tables/KIND.toml` is read when a file, a command or a call of that kind is met. Most settings fit rows
(preflight/program/rows.py); for others a row names a function of this folder. CONTRIBUTING.md ("Add a framework's
keys") shows how a table is made; the classes below say what each key before the rows means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, toml

from preflight.program.arguments import Arguments
from preflight.program.bindings import under
from preflight.program.loaders import keywords_of_fields
from preflight.program.rows import FoundSettings, Plain, Sheet, function, read_call, read_parts
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding

FOLDER = Path(__file__).with_name("tables")


class ToolCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tool's own command."""

    name: str
    trains: list[str]
    """First words of command lines that train."""
    modules: dict[str, str] = {}
    """Python modules that are this command, each with the first word that it replaces ("": none)."""
    starters: dict[str, str] = {}
    """Imports of scripts that are this command, each with the first word that it replaces."""
    scripts: bool = False
    """The first words are scripts of the tool's repository, which are started by their files."""
    tells_its_word: bool = False
    """Rows read the first word, as `method`."""
    spawns: bool = False
    """It starts a process for each GPU by itself."""
    module_spawns: bool = True
    """So do its modules, started by Python."""


class ToolCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls of a program that take the tool's keys as keywords."""

    names: list[str]
    """Classes, or methods."""
    framework: str
    """The trainer of programs in which these names are the tool's."""
    inserts: dict[str, str] = {}
    """Job field -> keyword, where they are not those of the tool's files."""


class Table(Sheet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole table: how a file or a command of the tool is recognised, and the Job fields of its settings."""

    source: str
    """The tool's release and the files that the table was read from."""
    framework: str | None = "transformers-trainer"
    """The trainer; absent if the file starts nothing."""
    starts: bool = True
    """Whether the file starts a run (and does not just configure another program)."""
    launched: bool = False
    """Whether the command that starts the run decides how many processes there are, and how they share the model."""
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
    command: ToolCommand | None = None
    inserts: dict[str, str] = {}
    """Job field -> the key that states it, where a fix may add it to a file or a command of the tool."""
    calls: list[ToolCall] = []
    modules: list[str] = []
    """Beginnings of whole names of calls that parts of the table read."""
    defaults: dict[str, Plain] = {}
    """The tool's values of keys that are not given."""
    renamed: dict[str, str] = {}
    """Other names of keys -> the name that the rows use."""
    prepare: str = ""
    """A function of the arguments that completes them before the rows are read."""


def kinds() -> tuple[str, ...]:
    """Every kind of file or command that has a table, in the order in which they are asked."""
    return tuple(heads())


@lru_cache(maxsize=1)
def heads() -> Mapping[str, Table]:
    """The heads of all tables, which is all that is needed until one of the tools is met."""
    found = {
        path.stem: toml.decode(path.read_text("utf-8").partition("\n[[parts]]")[0], type=Table)
        for path in FOLDER.glob("*.toml")
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


@lru_cache(maxsize=32)
def load(kind: str) -> Table:
    """The table of one kind."""
    return toml.decode((FOLDER / f"{kind}.toml").read_text("utf-8"), type=Table)


def keywords(framework: str) -> list[tuple[frozenset[str], Mapping[str, str]]]:
    """(names of calls, Job field -> keyword that states it) of a framework, and of the data loader."""
    found = [(call, call.inserts or head.inserts) for head in heads().values() for call in head.calls]
    own = [(frozenset(call.names), inserts) for call, inserts in found if call.framework == framework]
    return [*own, (frozenset({"DataLoader"}), keywords_of_fields())]


def read(kind: str, args: Arguments) -> FoundSettings:
    """The Job fields of arguments of this kind."""
    table = load(kind)
    args = _named(args, table.renamed)
    if table.defaults:
        args = args.completed({}, {**table.defaults, **args.defaults})
    if table.prepare:
        args = function(table.prepare)(args)
    return read_parts((part for part in table.parts if not part.calls), args, table)


def bindings_of_calls(kind: str, records: Sequence[CallRecord]) -> list[Binding]:
    """Bindings of those calls that the table of this kind reads."""
    own = [record for record in records if record.name.startswith(tuple(heads()[kind].modules))]
    return [b for record in own for b in under(record.conditions, read_call(load(kind), record))]


def _named(args: Arguments, renamed: Mapping[str, str]) -> Arguments:
    if not renamed:
        return args
    given = {renamed[name]: expr for name, expr in args.given.items() if name in renamed}
    kept = {name: expr for name, expr in args.given.items() if name not in renamed}
    return Arguments(given | kept, None, args.empty, args.rank, args.call)
