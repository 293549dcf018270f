"""Settings: `[tool.preflight]` of the closest pyproject.toml, or preflight.toml."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from preflight.vocabulary.errors import SettingsError, suggestion
from preflight.vocabulary.job import fields
from preflight.vocabulary.plain import plain


class RuleSettings(BaseModel):
    """`[tool.preflight.rules.NAME]`: a rule's own options stand beside these and are checked by the rule."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    severity: Literal["error", "warning", "info"] | None = None
    fix: Literal["safe", "unsafe", "never"] | None = None


class Settings(BaseModel):
    """What a project tells preflight about itself."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True)
    gpu: str | None = Field(default=None, description="The GPU that jobs run on when the files do not say.")
    machine: str | None = Field(default=None, description="A machine by name, or the path of a cluster file.")
    roots: list[str] = Field(
        default=[], description="Files that start jobs (globs): a file given alone finds its study here."
    )
    exclude: list[str] = Field(default=[], description="Globs that are never checked.")
    select: list[str] = Field(default=[], description="Only these rules.")
    ignore: list[str] = Field(default=[], description="Not these rules.")
    per_file_ignores: dict[str, list[str]] = Field(default={}, alias="per-file-ignores", description="Glob -> rules.")
    map: dict[str, str] = Field(default={}, description="A project's own spelling -> Job field.")
    set: dict[str, Any] = Field(default={}, description="Job field -> value, where the files cannot say it.")
    constraints: dict[str, str] = Field(
        default={}, description="Name -> an inequality over the project's own settings."
    )
    rules: dict[str, RuleSettings] = Field(
        default={}, description="Per rule: severity, fix, and the rule's own options."
    )
    interpreter: str | None = Field(
        default=None, description="A Python with torch, to trace models that no shipped law knows."
    )
    trace: bool = Field(default=True, description="Trace unknown models when torch is there.")

    @field_validator("map", "set", mode="before")
    @classmethod
    def _dotted(cls, table: object) -> object:
        """TOML reads `data.sample_bytes = 1` as a table in a table; both spellings mean the dotted name."""
        return dict(_flat(table, "")) if isinstance(table, dict) else table


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and prefix + key + "." not in _MAPPINGS:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


_MAPPINGS = ("software.", "model.config.", "model.kwargs.", "train.peft.options.")

FILE = "preflight.toml"
"""Its top level is what `[tool.preflight]` is in pyproject.toml; it wins over a pyproject.toml beside it."""


def load(start: Path) -> tuple[Settings, Path | None]:
    """The settings that govern `start` (a file or directory) and the file they are in: the closest, nothing is merged.

    A pyproject.toml without `[tool.preflight]` is passed over. No file: the defaults and None. Raises SettingsError.
    """
    directory = start if start.is_dir() else start.parent
    for folder in (directory, *directory.parents):
        found = _in_folder(folder)
        if found is not None:
            return found
    return Settings.model_construct(), None


@lru_cache(maxsize=1024)
def _in_folder(folder: Path) -> tuple[Settings, Path] | None:
    own, shared = folder / FILE, folder / "pyproject.toml"
    if own.is_file():
        return parse(_read(own), own.name), own
    if shared.is_file():
        text = _read(shared)
        if "preflight" in text:  # parsing costs ten times what looking does
            table = _toml(text, shared.name).get("tool")
            if isinstance(table, dict) and "preflight" in table:
                return _validate(table["preflight"], f"{shared.name}: tool.preflight"), shared
    return None


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file. Raises SettingsError."""
    return _toml(_read(path), path.name)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name}: cannot be read: {error}") from error


def _toml(text: str, name: str) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    try:
        table: dict[str, object] = tomllib.loads(text)
        return table
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{name}: not valid TOML: {error}") from error


def parse(text: str, name: str = FILE) -> Settings:
    """The settings in the text of a preflight.toml. Raises SettingsError, its message starting with `name`."""
    table = _toml(text, name)
    nested = table.get("tool")
    if isinstance(nested, dict) and set(table) == {"tool"} and "preflight" in nested:
        raise SettingsError(f"{name}: write the settings at the top level here; [tool.preflight] is for pyproject.toml")
    return _validate(table, name)


def _validate(table: object, where: str) -> Settings:
    try:
        suits = plain(Settings, table) if isinstance(table, dict) else None
        settings = suits or Settings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(f"{where}{_first(error)}") from error
    named = [(f"map.{key}", field) for key, field in settings.map.items()]
    for name, field in [*named, *((f"set.{key}", key) for key in settings.set)]:
        if not is_field(field):
            raise SettingsError(f"{where}.{name}: {field} is not a Job field{suggestion(field, fields())}")
    check_values(settings.set, f"{where}.set")
    return settings


def _first(error: ValidationError) -> str:
    """`.key: what is wrong` for the first of pydantic's complaints."""
    details = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        known = [info.alias or name for name, info in Settings.model_fields.items()]
        return f".{key}: there is no such setting{suggestion(key, known)}"
    return f".{key}: {details['msg'][:1].lower()}{details['msg'][1:]}" if key else f": {details['msg']}"


def is_field(name: str) -> bool:
    """Whether a dotted name is a Job field, or a key of one that is a mapping (software.torch, model.config.n_embd)."""
    return name in fields() or name.startswith(_MAPPINGS)


def check_values(values: Mapping[str, object], where: str) -> None:
    """Raises SettingsError where a value does not suit its Job field."""
    from preflight.engine.job_by_hand import stated
    from preflight.vocabulary.job import build

    for field, value in values.items():
        try:
            build({field: stated(field, value)})
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise SettingsError(f"{where}: {field} = {value!r}: {message[:1].lower()}{message[1:]}") from error
