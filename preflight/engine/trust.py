"""What a project's files may name: what lies in its checkout, and what the user trusts by name.

Real paths decide, so neither a symbolic link nor `..` leads out of the checkout. Starting a program is stricter than
reading a file: nothing in a checkout is started unless the user names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from preflight.engine.files import checkout
from preflight.engine.user_settings import user_settings
from preflight.system import observed
from preflight.system.files import real
from preflight.vocabulary.errors import SettingsError
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Value


@dataclass(frozen=True)
class Trust:
    """The checkout whose files speak, and the places that `--trust` and the user's own settings name."""

    root: Path
    places: tuple[Path, ...] = ()

    def reads(self, path: Path) -> bool:
        """Whether a file that the project names may be read: a law, a machine file."""
        full = real(path)
        return full.is_relative_to(self.root) or any(full.is_relative_to(real(place)) for place in self.places)

    def starts(self, path: Path) -> bool:
        """Whether a program that the project names may be started: it, or a directory that it lies in, is trusted.

        Its name is not followed: the `python` of an environment is a link to the system's, and starts with what lies
        beside the link.
        """
        place = place_of(path)
        return any(place == one or (observed.is_dir(one) and place.is_relative_to(real(one))) for one in self.places)


def trust_in(root: Path, named: Iterable[str]) -> Trust:
    """What the files of a project at `root` may name. `named`: what the user does, from the current directory."""
    top = checkout(real(root)) or real(root)
    return Trust(top, tuple(place_of(Path(os.path.expanduser(one))) for one in named))


def place_of(path: Path) -> Path:
    """Where a path leads, its last name not followed."""
    path = Path(os.path.abspath(path)) if not path.is_absolute() else path
    if path.name in ("", ".."):
        return real(path)
    return real(path.parent) / path.name


def named_by_user(options: Iterable[str]) -> tuple[str, ...]:
    """Paths of `--trust` and of the user's own settings, each once. Raises SettingsError."""
    return tuple(dict.fromkeys((*options, *user_settings().trust)))


def laws_of(stated: Mapping[str, Value]) -> tuple[str, ...]:
    """The law that the command line names with `--set`: a user who names a file means it."""
    law = stated.get("model.law")
    return (law,) if isinstance(law, str) else ()


def refuse_outside(settings: Settings, trust: Trust) -> None:
    """Raises SettingsError where a project's settings state a model that lies outside of it on this machine.

    What a job or a program names is what it loads, wherever that is, and its config.json is read; settings have no such
    reason.
    """
    path = settings.set.get("model.path")
    if isinstance(path, str) and observed.exists(path) and not trust.reads(Path(path)):
        raise SettingsError(f"set.model.path: {path} lies outside the project: it is not read without --trust {path}")
