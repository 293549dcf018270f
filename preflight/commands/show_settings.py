"""`preflight check --show-settings`: the settings that a check would use, each with where it comes from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from preflight.engine.files import Batch
from preflight.engine.user_settings import user_settings
from preflight.reports import streams
from preflight.reports.plain import Plain, written
from preflight.reports.style import look_for, table
from preflight.vocabulary.settings import Settings

DEFAULT = "default"
COMMAND_LINE = "command line"
USER = "user's settings"


class Setting(Struct, frozen=True):
    """A setting with its value, as JSON has it, and the name of what states it."""

    name: str
    value: object
    source: str


class Stated(Struct, frozen=True):
    """The options of the command line that replace or extend settings; None and empty: not given."""

    gpu: str | None
    machine: str | None
    set: Mapping[str, object]
    select: Sequence[str]
    ignore: Sequence[str]
    trust: Sequence[str]


def show(batches: Iterable[Batch], stated: Stated, cwd: Path, as_json: bool) -> None:
    """Print the settings of each project."""
    found = [(batch, list(effective(batch, stated, cwd))) for batch in batches]
    if as_json:
        projects: list[Plain] = [
            {
                "root": str(batch.root),
                "file": str(batch.settings_file) if batch.settings_file is not None else None,
                "settings": [{"name": one.name, "value": one.value, "source": one.source} for one in settings],
            }
            for batch, settings in found
        ]
        streams.show(written({"version": 1, "projects": projects}), "json")
        return
    look = look_for(sys.stdout)
    for batch, settings in found:
        streams.show(f"{look.paint(f'project {streams.clean(str(batch.root))}', 'bold')}\n")
        rows = [(one.name, _text(one.value), one.source) for one in settings]
        streams.show("\n".join(table(rows, look)) + "\n")


def effective(batch: Batch, stated: Stated, cwd: Path) -> Iterator[Setting]:
    """The settings of a project in the order of the schema; tables (`set`, `rules`) entry by entry."""
    settings = batch.settings
    file = _file(batch, cwd)
    given: dict[str, object] = {"gpu": stated.gpu, "machine": stated.machine, "select": list(stated.select)}
    data = settings.model_dump(mode="json", by_alias=True)
    for field, info in Settings.model_fields.items():
        name = info.alias or field
        source = file if field in settings.model_fields_set else DEFAULT
        if given.get(name):
            yield Setting(name, given[name], COMMAND_LINE)
        elif name == "ignore":
            yield from _ignored(settings, stated, source)
        elif name == "set":
            yield from _set(settings, stated, file)
        elif name == "interpreter":
            yield _interpreter(settings, source)
        elif isinstance(data[name], dict) and data[name]:
            yield from _entries(name, data[name], source)
        else:
            yield Setting(name, data[name], source)
    yield from _trusted(stated)


def _ignored(settings: Settings, stated: Stated, source: str) -> Iterator[Setting]:
    """Rules that the settings or the command line leave out; what `--select` names is not left out by settings."""
    of_file = [name for name in settings.ignore if name not in stated.select]
    if of_file or not stated.ignore:
        yield Setting("ignore", of_file, source)
    if stated.ignore:
        yield Setting("ignore", list(stated.ignore), COMMAND_LINE)


def _set(settings: Settings, stated: Stated, file: str) -> Iterator[Setting]:
    for name in dict.fromkeys([*settings.set, *stated.set]):
        told = name in stated.set
        yield Setting(f"set.{name}", (stated.set if told else settings.set)[name], COMMAND_LINE if told else file)
    if not settings.set and not stated.set:
        yield Setting("set", {}, DEFAULT)


def _interpreter(settings: Settings, source: str) -> Setting:
    own = user_settings().interpreter
    if settings.interpreter is None and own is not None:
        return Setting("interpreter", own, USER)
    where = source if settings.interpreter is None else f"{source}, started only if --trust names it"
    return Setting("interpreter", settings.interpreter, where)


def _entries(name: str, values: Mapping[str, object], source: str) -> Iterator[Setting]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from (Setting(f"{name}.{key}.{one}", two, source) for one, two in value.items() if two is not None)
        else:
            yield Setting(f"{name}.{key}", value, source)


def _trusted(stated: Stated) -> Iterator[Setting]:
    own = user_settings().trust
    if own or not stated.trust:
        yield Setting("trust", own, USER if own else DEFAULT)
    if stated.trust:
        yield Setting("trust", list(stated.trust), COMMAND_LINE)


def _file(batch: Batch, cwd: Path) -> str:
    return Path(os.path.relpath(batch.settings_file, cwd)).as_posix() if batch.settings_file is not None else DEFAULT


def _text(value: object) -> str:
    """A value as TOML spells it, near enough to be copied; `-` for none."""
    import json

    if value is None or value == [] or value == {}:
        return "-"
    return json.dumps(value, ensure_ascii=False, default=str)
