"""The user's own settings for all projects, which a checked tree cannot change: a file in the user's directory."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from preflight.system import observed
from preflight.system.files import real, user_directory
from preflight.vocabulary.errors import SettingsError

FILE = "settings.toml"


class UserSettings(BaseModel):
    """The settings of a user for all projects."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    interpreter: str | None = Field(default=None, description="A Python with torch, by an absolute path.")
    trust: list[str] = Field(default=[], description="Absolute paths, as if --trust named each in every command.")


def user_settings() -> UserSettings:
    """The settings in the user's file; none where there is no file. Raises SettingsError."""
    folder = user_directory("config")
    path = folder / FILE if folder is not None else None
    return _read(path) if path is not None and observed.lexists(path) else UserSettings.model_construct()


@lru_cache(maxsize=4)
def _read(path: Path) -> UserSettings:
    from preflight.engine.settings import read_toml

    _refuse_what_others_write(path)
    try:
        found = UserSettings.model_validate(read_toml(path))
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise SettingsError(f"{path}: {'.'.join(map(str, details['loc']))}: {details['msg']}") from error
    for name in (*found.trust, *([found.interpreter] if found.interpreter is not None else [])):
        if not os.path.isabs(os.path.expanduser(name)):
            raise SettingsError(f"{path}: {name} is not an absolute path")
    return found


def _refuse_what_others_write(path: Path) -> None:
    """Raises SettingsError for a file, or its directory, that another user owns or may write."""
    full = real(path)
    if not observed.is_file(full):
        raise SettingsError(f"{path}: not a regular file")
    if not hasattr(os, "getuid"):  # Windows: rights are no part of a mode there
        return
    for one in (full, full.parent):
        status = observed.status(one)
        if status.st_uid not in (os.getuid(), 0):
            raise SettingsError(f"{one}: belongs to another user; settings that start programs have to be your own")
        if status.st_mode & 0o022:
            raise SettingsError(f"{one}: others may write it; chmod go-w {one}")
