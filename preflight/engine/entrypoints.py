"""The entry points of a group, without `importlib.metadata`: importing that costs a tenth of a check.

The files are those of https://packaging.python.org/specifications/entry-points/: `entry_points.txt` in the metadata
directory of every distribution on `sys.path`. Anything but plain directories there is left to the standard library.
Distributions in a checked tree do not count: metadata there can be written by whoever wrote the tree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from preflight.system.import_path import checked_trees, foreign


def values_of(group: str) -> list[str]:
    """The values of a group's entry points, sorted, each once."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if not _usual(finder)):
        return _by_library(group)
    found: set[str] = set()
    seen: set[str] = set()
    for folder in _folders():
        if os.path.isfile(folder):  # an archive
            return _by_library(group)
        for name, text in _listed(folder):
            if name not in seen:
                seen.add(name)
                found.update(_in_section(text, group) if group in text else ())
    return sorted(found)


def _folders() -> list[str]:
    """The entries of sys.path that are searched."""
    trees = checked_trees(sys.argv[1:])
    return [entry for entry in dict.fromkeys(sys.path) if not foreign(entry, trees)]


def _usual(finder: object) -> bool:
    """The interpreter's own search along sys.path."""
    return getattr(finder, "__module__", "") == "_frozen_importlib_external"


def _by_library(group: str) -> list[str]:
    from importlib.metadata import distributions

    seen: set[str] = set()
    found: set[str] = set()
    for one in distributions(path=_folders()):
        name = _normal(str(one.name))
        if name not in seen:
            seen.add(name)
            found.update(point.value for point in one.entry_points if point.group == group)
    return sorted(found)


def _listed(folder: str) -> Iterator[tuple[str, str]]:
    """(distribution, text of its entry_points.txt) of a directory; the first on the path shadows others of its name."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if dot and kind in ("dist-info", "egg-info"):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except OSError:
                text = ""
            yield _normal(stem.partition("-")[0]), text


def _normal(name: str) -> str:
    """A distribution's name as all its spellings mean it."""
    return name.lower().replace("_", "-").replace(".", "-")


def _in_section(text: str, group: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            yield line.partition("=")[2].strip()
