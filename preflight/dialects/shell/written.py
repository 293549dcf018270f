"""Files that a script writes before a command: what a program reads under their names is not what the project has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight.dialects.shell.made_files import MadeFiles, flat_text
from preflight.documents.shell_text import parts_of, starts_at
from preflight.vocabulary.project import Project, UnreadableFile, without_dots
from preflight.vocabulary.values import Const, Expr, Unknown, evaluate
from preflight.vocabulary.written import TextPart, Written, WrittenText

_SETTINGS = (".json", ".jsonc", ".yaml", ".yml", ".toml")
"""Files whose stated text is read as the settings of a program. Any other file that is written is not read at all."""


def files_written(
    made: MadeFiles, directories: Callable[[str | None], list[str]], project: Project
) -> dict[str, Written]:
    """Each path of the project under which a written file may be looked up. `directories`: where a name may start.

    What has the same text as the file in the project is left out.
    """
    found: dict[str, Written] = {}
    for (name, directory), expr in made.items():
        text = flat_text(expr)
        written = None if expr is None or text is None or not name.endswith(_SETTINGS) else written_text(expr)
        for path, exact in _paths(name, directory, directories):
            if text is not None and _stands(path, text, project):
                found.pop(path, None)
            elif exact and written is not None:
                found[path] = written
            elif path in found or project.exists(path):
                found[path] = None
    return found


def _paths(
    name: str, directory: str | None, directories: Callable[[str | None], list[str]]
) -> Iterator[tuple[str, bool]]:
    """The paths of a written file, and whether the file is certainly the one that is meant.

    A name that starts outside the project may be looked up by any of its ends, which may also be another file.
    """
    if not name.startswith(("/", "~", "$")):
        for one in directories(directory):
            if path := without_dots(f"{one}/{name}"):
                yield path, True
        return
    parts = (without_dots(name.lstrip("~$")) or "").split("/")
    for at in range(len(parts)):
        if path := "/".join(parts[at:]):
            yield path, not at and name.startswith("/")


def _stands(path: str, text: str, project: Project) -> bool:
    try:
        return project.exists(path) and project.source(path).text == text
    except UnreadableFile:
        return False


def written_text(expr: Expr) -> WrittenText | None:
    """The text of an expression with the place of each part; None if a part is not known."""
    pieces: list[str] = []
    parts: list[TextPart] = []
    at = 0
    for part in parts_of(expr):
        value = part.value if isinstance(part, Const) else evaluate(part)
        if isinstance(value, (Unknown, tuple, dict)):
            return None
        text = str(value)
        origin, exact = starts_at(text, part.origin)
        parts.append(TextPart(at, origin, exact))
        pieces.append(text)
        at += len(text)
    return WrittenText("".join(pieces), tuple(parts))
