"""Extensions in installed distributions: the entry points of preflight's groups, found in one scan of the import path.

A distribution in a checked tree does not count: anyone may have written its metadata. Most distributions have no such
entry points. So the text of their entry points is searched before anything else is read.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, distributions

from preflight.system.import_path import checked_trees, foreign

RULES, DIALECTS, WORKLOADS = "preflight.rules", "preflight.dialects", "preflight.workloads"
OPTIMIZERS, GPUS = "preflight.optimizers", "preflight.gpus"
"""The groups of entry points. One part of preflight reads each."""

_OURS = re.compile(r"^\s*\[\s*preflight\.", re.MULTILINE)


@dataclass(frozen=True, order=True)
class AddedEntry:
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


@lru_cache(maxsize=8)
def _scan(folders: tuple[str, ...]) -> tuple[tuple[str, AddedEntry], ...]:
    """(group, entry point) of every distribution with a group of preflight's.

    Only then is the distribution's name read: it is in the metadata, which takes much longer to parse.
    """
    found = []
    for one in distributions(path=list(folders)):
        if _OURS.search(one.read_text("entry_points.txt") or "") and _counts(one, folders):
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
    first = next(iter(distributions(name=one.name, path=list(folders))), one)
    return first.locate_file("") == one.locate_file("") and first.version == one.version
