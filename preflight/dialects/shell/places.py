"""The files of the project that the words of a script name, seen from the current directory of a command."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from msgspec.structs import replace

from preflight.dialects.shell.interpreter import Shell, StartedCommand
from preflight.dialects.shell.values import word_text
from preflight.vocabulary.project import Project, without_dots
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Const, Op, Origin, evaluate


def started_in(name: str | None, path: str, run: StartedCommand, shell: Shell, project: Project) -> str | None:
    """The current directory of a command that names a file of the project by a relative name; None: not known."""
    if name is None or name.startswith(("/", "~", "$")):
        return None
    for directory in directories_of(run.directory, str(PurePosixPath(shell.source.path).parent), project):
        if without_dots(f"{directory}/{name}") == path:
            return without_dots(directory) or "."
    return None


def place_of(word: Word, run: StartedCommand) -> Origin | None:
    """The place of a link: the word with its target, and the places of the loops around it."""
    return None if word.origin is None else replace(word.origin, via=run.origin.via)


def target_of(word: Word, run: StartedCommand, shell: Shell, project: Project) -> str | None:
    """The project's file that a word names. If the start of the path is unknown, the rest of it is searched."""
    text = word_text(word)
    if text is None and word.value is not None:
        known = evaluate(word.value)
        text = f"{word.prefix}{known}" if isinstance(known, str) else None
    if text is not None:
        return in_project(text, run, project, shell.source.path)
    value = word.value
    if isinstance(value, Op) and value.operator == "concat" and isinstance(value.operands[-1], Const):
        tail = str(value.operands[-1].value)
        if "/" in tail:
            return in_project(tail.partition("/")[2], run, project, shell.source.path)
    return None


def module_in_folder(name: str, run: StartedCommand, shell: Shell, project: Project) -> tuple[str | None, str | None]:
    """The file of `python -m pkg.train` and the folder that it is started in, where that is not the project's own:
    `cd code && python -m pkg.train`. (None, None) for a module of the project's folder, and for any other."""
    stem = name.replace(".", "/")
    for text in (f"{stem}.py", f"{stem}/__main__.py"):
        path = in_project(text, run, project, shell.source.path)
        if path is not None:
            directory = started_in(text, path, run, shell, project)
            return (path, directory) if directory not in (None, ".") else (None, None)
    return None, None


def in_project(text: str | None, run: StartedCommand, project: Project, script: str | None = None) -> str | None:
    """The file of that name, relative to the current directory of the script. An absolute path may match by its end."""
    if not text or text.startswith("-") or "\n" in text or len(text) > 1024:
        return None
    script = script if script is not None else run.origin.path
    if text.startswith(("/", "~")):
        parts = (without_dots(text) or "").split("/")
        names, directories = ["/".join(parts[index:]) for index in range(len(parts))], ["."]
    else:
        names, directories = [re.sub(r"^\$\w+/", "", text)], []
    directories += directories_of(run.directory, str(PurePosixPath(script).parent), project)
    for name in names:
        for directory in directories:
            path = without_dots(f"{directory}/{name}")
            if path is not None and project.exists(path):
                return path
    return _from_above(text, project)


def _from_above(text: str, project: Project) -> str | None:
    """`project/src/train.py`, started in the folder that holds the project: the first name is that of its folder. Any
    other name may be another repository's, which has a file of that name, too."""
    first, _, rest = text.partition("/")
    if first != project.root.name or project.is_dir(first):
        return None
    path = without_dots(rest)
    return path if path is not None and project.exists(path) else None


def file_of_text(name: str, directory: str | None, script: str, project: Project) -> str | None:
    """The file that a tool for text reads, relative to the current directory of the script (None: not known).

    A name that starts at `/` starts at the root of the project: elsewhere may be another file of the same name.
    """
    if not name or "\n" in name or len(name) > 1024 or name.startswith("~"):
        return None
    beside = str(PurePosixPath(script).parent)
    above = [""] if name.startswith("/") else directories_of(directory, beside, project)
    paths = [without_dots(f"{one}/{name}" if one else name.lstrip("/")) for one in above]
    return next((path for path in paths if path is not None and project.exists(path)), None)


def directories_of(directory: str | None, beside: str, project: Project) -> list[str]:
    """Possible current directories of a script, the most likely first.

    A script may be started in its own directory, or in one above up to the root. After `cd` to an absolute path, the
    project's directory of that name is tried first, then the root.
    """
    above = [beside, *(str(parent) for parent in PurePosixPath(beside).parents)]
    if directory is None:
        return [".", *above]
    if directory.startswith("/"):
        parts = (without_dots(directory) or "").split("/")
        inside = ["/".join(parts[index:]) for index in range(len(parts))]
        return [*(path for path in inside if path and project.is_dir(path)), ".", *above]
    return [*(f"{start}/{directory}" for start in above), *above]
