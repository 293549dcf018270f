"""Extensions in installed distributions: the entry points of preflight's groups, found in one scan of the import path.

A distribution in a checked tree does not count: anyone may have written its metadata. Most distributions have no such
entry points, and most environments none but preflight's own rules. So the texts of entry points are searched first;
importlib.metadata, which is slow to import, is asked only where one of them adds something.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from preflight.system.import_path import checked_trees, foreign

if TYPE_CHECKING:
    from importlib.metadata import Distribution

RULES, DIALECTS, WORKLOADS = "preflight.rules", "preflight.dialects", "preflight.workloads"
OPTIMIZERS, GPUS = "preflight.optimizers", "preflight.gpus"
"""The groups of entry points. One part of preflight reads each."""

_OURS = re.compile(rb"^\s*\[\s*preflight\.", re.MULTILINE)
_OWN = re.compile(rb"^\[preflight\.rules\]\r?\npreflight = preflight_rules\s*(?=^\[|\Z)", re.MULTILINE)
"""The section of preflight's own distribution (pyproject.toml)."""


class AddedEntry(Struct, frozen=True, order=True):
    """One entry point of a distribution. `broken`: the distribution's list of entry points cannot be read."""

    value: str
    distribution: str
    name: str = ""
    broken: bool = False

    def __str__(self) -> str:
        return f"{self.value} of the distribution {self.distribution}"


def installed(group: str) -> tuple[AddedEntry, ...]:
    """The entry points of a group, sorted by their values, each value once."""
    trees = checked_trees(sys.argv[1:])
    folders = tuple(entry for entry in dict.fromkeys(sys.path) if not foreign(entry, trees))
    found = {one.value: one for of_group, one in reversed(_scan(folders)) if of_group == group}
    return tuple(sorted(found.values()))


OWN = AddedEntry("preflight_rules", "preflight-lint", "preflight")


@lru_cache(maxsize=8)
def _scan(folders: tuple[str, ...]) -> tuple[tuple[str, AddedEntry], ...]:
    """(group, entry point) of every distribution with a group of preflight's."""
    own = False
    for folder in folders:
        for text in _texts(folder):
            rest = _OWN.sub(b"", text)
            own = own or rest != text
            if _OURS.search(rest):
                return _by_library(folders)
    return ((RULES, OWN),) if own else ()


def _texts(folder: str) -> Iterator[bytes]:
    """The texts of the entry points of the distributions in a folder. One that cannot be read is given as one that has
    a group of preflight's: importlib.metadata says what is wrong."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        yield b"[preflight."
        return
    for name in names:
        if name.lower().endswith((".dist-info", ".egg-info")) or name.lower() == "egg-info":
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    yield file.read()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                yield b"[preflight."


def _by_library(folders: tuple[str, ...]) -> tuple[tuple[str, AddedEntry], ...]:
    """What importlib.metadata says. A distribution's name is read where it has a group of preflight's: it is in the
    metadata, which takes much longer to parse."""
    from importlib.metadata import distributions

    found = []
    for one in distributions(path=list(folders)):
        text = (one.read_text("entry_points.txt") or "").encode("utf-8", "surrogateescape")
        if _OURS.search(text) and _counts(one, folders):
            found += _stated(one, str(one.name))
    return tuple(found)


def _stated(one: Distribution, name: str) -> list[tuple[str, AddedEntry]]:
    try:
        return [(point.group, AddedEntry(point.value, name, point.name)) for point in one.entry_points]
    except (TypeError, ValueError, AttributeError):  # what the library raises for a line without "="
        groups = (RULES, DIALECTS, WORKLOADS, OPTIMIZERS, GPUS)
        return [(group, AddedEntry("entry_points.txt", name, broken=True)) for group in groups]


def _counts(one: Distribution, folders: tuple[str, ...]) -> bool:
    """Whether it is the first distribution of its name: that one is imported."""
    from importlib.metadata import distributions

    first = next(iter(distributions(name=one.name, path=list(folders))), one)
    return first.locate_file("") == one.locate_file("") and first.version == one.version
