"""Trust: a project's files may only name files of its checkout, and files that the user trusts by name.

Real paths are compared, so neither a symbolic link nor `..` leads out of the checkout. Starting a program is stricter
than reading a file: no program in a checkout is started unless the user names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from preflight.engine.files import checkout
from preflight.engine.user_settings import user_settings
from preflight.system import observed
from preflight.system.files import real
from preflight.vocabulary.errors import SettingsError
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Value


class Trust(Struct, frozen=True):
    """The checkout, and the trusted paths of `--trust` and of the user's own settings."""

    root: Path
    places: tuple[Path, ...] = ()

    def reads(self, path: Path) -> bool:
        """Whether a file that the project names may be read: a law, a machine file."""
        full = real(path)
        return full.is_relative_to(self.root) or any(full.is_relative_to(real(place)) for place in self.places)

    def starts(self, path: Path) -> bool:
        """Whether a program that the project names may be started: it, or a directory that contains it, is trusted.

        Its name is not followed: the `python` of an environment is a link to the system's, and starts with the files
        next to the link.
        """
        place = place_of(path)
        return any(place == one or (observed.is_dir(one) and place.is_relative_to(real(one))) for one in self.places)

    def accepts(self, path: Path) -> bool:
        """Whether the user stands for the figures of a file: it, or a directory that contains it, is trusted by name. A
        file of the checkout may be a stranger's."""
        return self.starts(path)


def trust_in(root: Path, named: Iterable[str]) -> Trust:
    """The trust in a project at `root`. `named`: trusted paths of the user, relative to the current directory."""
    top = checkout(real(root)) or real(root)
    return Trust(top, tuple(place_of(Path(os.path.expanduser(one))) for one in named))


def place_of(path: Path) -> Path:
    """The real path, except that its last name is not followed if it is a link."""
    path = Path(os.path.abspath(path)) if not path.is_absolute() else path
    if path.name in ("", ".."):
        return real(path)
    return real(path.parent) / path.name


def named_by_user(options: Iterable[str]) -> tuple[str, ...]:
    """Paths of `--trust` and of the user's own settings, each once. Raises SettingsError."""
    return tuple(dict.fromkeys((*options, *user_settings().trust)))


def laws_of(stated: Mapping[str, Value]) -> tuple[str, ...]:
    """The law that the command line names with `--set`. A file that the user names is trusted."""
    law = stated.get("model.law")
    return (law,) if isinstance(law, str) else ()


def refuse_outside(settings: Settings, trust: Trust) -> None:
    """Raises SettingsError if a project's settings state a model outside the project.

    A job or a program may name a model anywhere, because it loads that model: its config.json is read. Settings have no
    such reason.
    """
    path = settings.set.get("model.path")
    if isinstance(path, str) and observed.exists(path) and not trust.reads(Path(path)):
        raise SettingsError(f"set.model.path: {path} is outside the project: it is not read without --trust {path}")
