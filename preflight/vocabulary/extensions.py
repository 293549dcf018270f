"""Extensions that other distributions add by entry points, and the error for those that cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from functools import reduce
from importlib import import_module
from typing import TypeVar

from preflight.system import entry_points, observed
from preflight.system.entry_points import DIALECTS as DIALECTS
from preflight.system.entry_points import GPUS as GPUS
from preflight.system.entry_points import OPTIMIZERS as OPTIMIZERS
from preflight.system.entry_points import RULES as RULES
from preflight.system.entry_points import WORKLOADS as WORKLOADS
from preflight.system.entry_points import AddedEntry
from preflight.vocabulary.errors import PreflightError

T = TypeVar("T")


class ExtensionError(PreflightError):
    """An extension is missing or broken, or its name is taken. The message names the distribution."""


def installed(group: str) -> tuple[AddedEntry, ...]:
    """The entry points of a group. Raises ExtensionError where a distribution's list of them cannot be read."""
    found = entry_points.installed(group)
    for one in found:
        if one.broken:
            raise wrong(one, "a line is no `name = value`")
    return found


def loaded(one: AddedEntry) -> object:
    """The object that an entry point names by `module` or `module:name`. Raises ExtensionError."""
    home, _, path = one.value.partition(":")
    return _safely(one, lambda: reduce(getattr, filter(None, path.split(".")), import_module(home)))


def resource(one: AddedEntry) -> str:
    """The text of a file in a package: `package:file.json`. Raises ExtensionError."""
    home, _, name = one.value.partition(":")
    return _safely(one, lambda: _file(home, name))


def _file(package: str, name: str) -> str:
    from importlib.resources import files

    found = files(package).joinpath(name)
    if isinstance(found, os.PathLike):
        observed.depends_on(found)
    return found.read_text(encoding="utf-8")


def _safely(one: AddedEntry, load: Callable[[], T]) -> T:
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a module that exits as it is imported
        text = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ExtensionError(f"{one} cannot be loaded: {text}") from error


def wrong(one: AddedEntry, why: str) -> ExtensionError:
    """The error for an extension that can be loaded but not used."""
    return ExtensionError(f"{one}: {' '.join(why.split())}")


def distinct(parts: Iterable[tuple[str, T, AddedEntry]], ours: Collection[str], what: str) -> dict[str, T]:
    """Extensions by name. Raises ExtensionError if two have one name, or one has a name of preflight's own."""
    found: dict[str, T] = {}
    homes: dict[str, AddedEntry] = {}
    for name, part, one in parts:
        if name in ours:
            raise wrong(one, f"preflight itself has {what} {name}")
        if name in homes:
            raise wrong(one, f"{what} {name} is also that of {homes[name]}")
        found[name], homes[name] = part, one
    return found
