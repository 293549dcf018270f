"""Console scripts: commands that the installation of the project's own package makes, each of which calls a function.

pip writes a short program for each (PyPA, "Entry points specification"); here it is a file that the job script is taken
to have written.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.values import Origin, Span
from preflight.vocabulary.written import TextPart, WrittenText

_SECTIONS = {
    "pyproject.toml": frozenset({"project.scripts", "tool.poetry.scripts"}),
    "setup.cfg": frozenset({"options.entry_points"}),
    "setup.py": frozenset({""}),
}
"""File -> its sections that name commands. In setup.py the lines stand in a list of texts."""
_SECTION = regex(r"^[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#.*)?$")
_ENTRY = regex(r"""["']?([\w.-]+)["']?\s*=\s*["']?([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)""")


class _Entry(Struct, frozen=True):
    module: str
    function: str
    place: Origin


_ENTRIES: CacheKind[dict[str, _Entry]] = CacheKind("the commands that a package's files name")
_STUB = """import sys
from {module} import {first}

if __name__ == "__main__":
    sys.exit({function}())
"""


def named_in(text: str, folder: str, project: Project) -> bool:
    """Whether a line of a script in that folder has the name of a command of the project."""
    files = [posixpath.join(place, file) for place in _above(folder) for file in _SECTIONS]
    names = {name for path in files for name in _commands(path, project)}
    return any(re.search(rf"^[^#\n]*(?<![\w./-]){re.escape(one)}(?![\w./-])", text, re.MULTILINE) for one in names)


def _commands(path: str, project: Project) -> dict[str, _Entry]:
    return project.remembered.get(_ENTRIES, lambda: _entries(path, project), path)


def stub_of(name: str, folder: str, project: Project) -> tuple[str, WrittenText] | None:
    """The program that a command is, as the path and the text of a file that the installation writes; None for a
    command that no package of the project has. `folder` is that of the job script, relative to the project's root."""
    for place in _above(folder):
        for file in _SECTIONS:
            path = posixpath.join(place, file)
            entry = _commands(path, project).get(name)
            home = _folder_of(entry.module, place, project) if entry is not None else None
            if entry is not None and home is not None:
                first = entry.function.partition(".")[0]
                text = _STUB.format(module=entry.module, first=first, function=entry.function)
                return _free_path(name, home, project), WrittenText(text, (TextPart(0, entry.place, False),))
    return None


def _free_path(name: str, home: str, project: Project) -> str:
    """Where the program lies: not where it would hide the package or module of the same name, which it imports."""
    path = posixpath.join(home, name.replace("-", "_"))
    taken = project.is_dir(path) or project.exists(f"{path}.py")
    return posixpath.join(home, f"{name}-script.py" if taken else f"{name}.py")


def _above(folder: str) -> Iterator[str]:
    """The folder and those above it; "" is the root."""
    folder = "" if folder == "." else folder
    yield folder
    while folder:
        folder = posixpath.dirname(folder)
        yield folder


def _entries(path: str, project: Project) -> dict[str, _Entry]:
    """The commands that a file names."""
    found: dict[str, _Entry] = {}
    with suppress(UnreadableFile):
        section, start = "", 0
        for line in project.source(path).text.splitlines(keepends=True):
            head = _SECTION.match(line)
            section = head[1].strip() if head is not None else section
            for entry in _ENTRY.finditer(line) if section in _SECTIONS[posixpath.basename(path)] else ():
                place = Origin(path, Span(start + entry.start(), start + entry.end()), editable=False)
                found[entry[1]] = _Entry(entry[2], entry[3], place)
            start += len(line)
    return found


def _folder_of(module: str, folder: str, project: Project) -> str | None:
    """The folder that a module is imported from: beside the file that names it, or its `src`."""
    path = module.replace(".", "/")
    for place in (folder, posixpath.join(folder, "src")):
        if any(project.exists(posixpath.join(place, path + end)) for end in (".py", "/__init__.py")):
            return place
    return None
