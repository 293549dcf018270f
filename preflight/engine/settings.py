"""Settings: `[tool.preflight]` of the closest pyproject.toml, or preflight.toml."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from preflight.system import observed
from preflight.system.files import UnreadableFile, read_text
from preflight.vocabulary.budgets import TOML_DOTS
from preflight.vocabulary.errors import SettingsError, suggestion
from preflight.vocabulary.job import build, fields
from preflight.vocabulary.settings import MAPPINGS, Settings
from preflight.vocabulary.values import brief

FILE = "preflight.toml"
"""Its top level is the same as `[tool.preflight]` in pyproject.toml; it overrides one in the same folder."""


def load(start: Path) -> tuple[Settings, Path | None]:
    """The settings that govern `start` (a file or directory) and the file they are in: the closest, nothing is merged.

    A pyproject.toml without `[tool.preflight]` is passed over. The search ends at the top of the checkout (`.git`), and
    never reaches the user's home directory, a directory that everybody may write (`/tmp`) or the root of the file
    system, unless `start` itself lies there: what is in them has nothing to do with the tree. No file: the defaults and
    None. Raises SettingsError.
    """
    directory = start if observed.is_dir(start) else start.parent
    for folder in above(directory):
        found = _in_folder(folder)
        if found is not None:
            return found
    return Settings.model_construct(), None


def above(directory: Path) -> Iterator[Path]:
    """The folders in which a tree may have its settings or its root: the folder, and those above it up to the top of
    its checkout, or to the first that many projects share."""
    for folder in (directory, *directory.parents):
        if folder != directory and _is_shared(folder):
            return
        yield folder
        if observed.exists(folder / ".git") or observed.exists(folder / ".hg"):
            return


def _is_shared(folder: Path) -> bool:
    """Whether a folder is no project of its own: the user's home, one that everybody may write, or the topmost."""
    if folder in (Path(folder.anchor), Path(observed.real(Path.home()))):
        return True
    if os.name != "posix":
        return False
    try:
        status = folder.stat()
    except OSError:
        return False
    # A checkout of the user's own may have such rights as well: in a container, or on a disk of another system.
    strange = bool(status.st_mode & stat.S_ISVTX) or status.st_uid != os.getuid()
    return strange and bool(status.st_mode & stat.S_IWOTH)


@lru_cache(maxsize=1024)
def _in_folder(folder: Path) -> tuple[Settings, Path] | None:
    own, shared = folder / FILE, folder / "pyproject.toml"
    try:
        return _of_files(own, shared)
    except SettingsError as error:
        error.file = own if observed.lexists(own) else shared
        raise


def _of_files(own: Path, shared: Path) -> tuple[Settings, Path] | None:
    if observed.lexists(own):
        return parse(_read(own), own.name), own
    if observed.lexists(shared):
        text = _read(shared)
        if "preflight" in text:  # parsing costs ten times what looking does
            table = toml_of(text, shared.name).get("tool")
            if isinstance(table, dict) and "preflight" in table:
                return _validate(table["preflight"], f"{shared.name}: tool.preflight"), shared
    return None


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file. Raises SettingsError."""
    return toml_of(_read(path), path.name)


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except UnreadableFile as error:
        raise SettingsError(f"{path.name}: cannot be read: {error}") from error


def toml_of(text: str, name: str) -> dict[str, object]:
    """The tables of a TOML text. Raises SettingsError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    if any(line.count(".") > TOML_DOTS for line in text.splitlines()):
        raise SettingsError(f"{name}: it is {TOML_DOTS.over}")
    try:
        table: dict[str, object] = tomllib.loads(text)
        return table
    except ValueError as error:  # tomllib's own, or a number of more digits than Python reads
        raise SettingsError(f"{name}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"{name}: not valid TOML: it is nested too deeply") from error


def parse(text: str, name: str = FILE) -> Settings:
    """The settings in the text of a preflight.toml. Raises SettingsError, its message starting with `name`."""
    table = toml_of(text, name)
    nested = table.get("tool")
    if isinstance(nested, dict) and set(table) == {"tool"} and "preflight" in nested:
        raise SettingsError(f"{name}: write the settings at the top level here; [tool.preflight] is for pyproject.toml")
    return _validate(table, name)


def _validate(table: object, where: str) -> Settings:
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(f"{where}{_first(error)}") from error
    named = [(f"map.{key}", field) for key, field in settings.map.items()]
    globs = {"exclude": settings.exclude, "roots": settings.roots, "per-file-ignores": [*settings.per_file_ignores]}
    for key, patterns in globs.items():
        for pattern in patterns:
            _glob(pattern, f"{where}.{key}")
    for name, field in [*named, *((f"set.{key}", key) for key in settings.set)]:
        if not is_field(field):
            raise SettingsError(f"{where}.{name}: {field} is not a Job field{suggestion(field, fields())}")
    check_values(settings.set, f"{where}.set")
    return settings


def _glob(pattern: str, where: str) -> None:
    from preflight.vocabulary.settings import compiled

    try:
        compiled(pattern)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error


def _first(error: ValidationError) -> str:
    """`.key: reason` for the first of pydantic's errors."""
    details = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        known = [info.alias or name for name, info in Settings.model_fields.items()]
        return f".{key}: there is no such setting{suggestion(key, known)}"
    return f".{key}: {details['msg'][:1].lower()}{details['msg'][1:]}" if key else f": {details['msg']}"


def is_field(name: str) -> bool:
    """Whether a dotted name is a Job field, or a key of one that is a mapping (software.torch, model.config.n_embd)."""
    return name in fields() or name.startswith(MAPPINGS)


def check_values(values: Mapping[str, object], where: str) -> None:
    """Raises SettingsError where a value does not suit its Job field."""
    from preflight.engine.job_by_hand import stated

    for field, value in values.items():
        try:
            build({field: stated(field, value)})
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise SettingsError(f"{where}: {field} = {brief(value)}: {message[:1].lower()}{message[1:]}") from error
