"""The programs that a notebook starts: `!python train.py`, `%run train.py`, cells of a shell."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.notebook.cells import Placed
from preflight.dialects.notebook.ipython import Command
from preflight.dialects.shell.interpreter import Shell
from preflight.dialects.shell.links import links_of, starts_program
from preflight.vocabulary.project import Project, without_dots
from preflight.vocabulary.reading import Link
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, unknown

_HOLE = re.compile(r"\{[^{}\n]*\}")
"""An expression of Python in a command: `--batch-size {BATCH}`."""


class Started(Struct):
    """What the commands of a notebook start."""

    links: list[Link] = field(default_factory=list)
    unread: Const | None = None
    """Why a program that they start is not read: a cell writes it."""


class _Session(Struct):
    """The state between the commands: each has a shell of its own in the same directory."""

    source: Source
    project: Project
    directory: str | None
    environment: dict[str, Expr] = field(default_factory=dict)
    written: dict[str, Origin] = field(default_factory=dict)
    """Names of the files that cells write."""
    elsewhere: bool = False
    """Whether the directory is one that a cell has cloned: its files are not those of this project."""


def started(source: Source, commands: Sequence[Command], project: Project) -> Started:
    """Links to the programs of the project that the commands start, one after the other. Equal ones are listed once."""
    folder = posixpath.dirname(source.path)
    session = _Session(source, project, f"/{folder}" if folder else ".")
    found = Started()
    seen: set[str] = set()
    group = 0
    for command in commands:
        links = list(_links(command, session))
        for link in links:
            name = posixpath.basename(link.target)
            if name in session.written:
                words = f"a cell of the notebook writes {name}, which it starts"
                found.unread = found.unread or unknown(words, session.written[name])
                continue
            key = f"{link.kind} {link.target} {plain(link.words)} {plain(link.launch)}"
            if key not in seen:
                seen.add(key)
                found.links.append(replace(link, group=group + (link.group or 0)))
        group += 1 + max((link.group or 0 for link in links), default=0)
    return found


def plain(part: object) -> str:
    """A text without the places in it, to compare launches and values."""
    return re.sub(r"Origin\(.*?Span\(.*?\).*?\)", "", repr(part))


def _links(command: Command, session: _Session) -> Iterator[Link]:
    text = command.text.text.strip()
    if command.kind == "write":
        words = [word for word in text.split() if not word.startswith("-")]
        if words:
            session.written[posixpath.basename(words[-1].strip("'\""))] = _origin(session.source, command.text)
    elif command.kind == "cd":
        _change_directory(text, session)
    elif command.kind == "env":
        name, _, value = text.partition("=") if "=" in text else text.partition(" ")
        if name.isidentifier() and value:
            place = _origin(session.source, command.text)
            session.environment[name] = (
                unknown("an expression of the notebook is in it", place)
                if re.search(r"[{$]", value)
                else Const(value.strip(), place)
            )
    elif command.kind in ("shell", "script", "run"):
        yield from _followed(command, session)


def _followed(command: Command, session: _Session) -> Iterator[Link]:
    shell = Shell(
        session.source, dict(session.environment), directory=session.directory, exported=set(session.environment)
    )
    parts = list(_parts(command, session.source))
    if command.kind == "run":
        parts.insert(0, Const("python "))
    if not parts:
        return
    shell.follow_text(parts[0] if len(parts) == 1 else Op("concat", tuple(parts), None))
    if session.elsewhere:
        return
    for link in links_of(shell, session.project, None).links:
        if link.kind == "script" or starts_program(link, session.project):
            yield link


def _change_directory(text: str, session: _Session) -> None:
    """`%cd`: a folder of the project, or one that is not known: what starts there is of another project, unless its
    folder has the name of this one's."""
    name = text.strip("'\"")
    here = (session.directory or ".").strip("/")
    if name.startswith(("/content", "/kaggle/working")):  # where Colab and Kaggle start a notebook
        here, name = "", re.sub(r"^/(content|kaggle/working)/?", "", name)
    path = without_dots(f"{here}/{name}") if not re.match(r"[/~$-]|.*[{$]", name) else None
    if path is not None and (path == "" or session.project.is_dir(path)):
        session.directory, session.elsewhere = (f"/{path}" if path else "."), False
    elif posixpath.basename(name.rstrip("/")) == session.project.root.name:
        session.directory, session.elsewhere = ".", False
    else:
        session.directory, session.elsewhere = None, True


def _parts(command: Command, source: Source) -> Iterator[Expr]:
    """The text for the shell; what IPython puts in is unknown."""
    text, at = command.text, 0
    holes = _HOLE.finditer(text.text) if command.kind != "script" else iter(())
    for hole in holes:
        yield from _runs(text.part(at, hole.start()), source)
        place = _origin(source, text.part(hole.start(), hole.end()))
        yield unknown("it is an expression of the notebook", place, Cause.not_read)
        at = hole.end()
    yield from _runs(text.part(at), source)


def _runs(text: Placed, source: Source) -> Iterator[Expr]:
    """A text in pieces that are written in the file as they are, so that each word has its own place."""
    start = 0
    for at in range(1, len(text.text) + 1):
        if at == len(text.text) or text.starts[at] != text.ends[at - 1] or text.ends[at - 1] - text.starts[at - 1] != 1:
            piece = text.part(start, at)
            yield Const(piece.text, _origin(source, piece))
            start = at


def _origin(source: Source, text: Placed) -> Origin:
    return Origin(source.path, text.span(), editable=False)
