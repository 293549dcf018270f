"""The links of a script: what its commands start, and which of the programs take memory in its job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from msgspec import Struct

from preflight.dialects.shell.interpreter import Shell, StartedCommand
from preflight.dialects.shell.launch import Launched, launched, without_launchers
from preflight.dialects.shell.values import word_text
from preflight.frameworks.launchers import RUNNERS, LaunchCommand
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Link, Request, StartedProgram, Word
from preflight.vocabulary.values import Const


class LinksOfScript(Struct, frozen=True):
    """What a script starts. `external`: a training program is not in the project. `missing`: see `Launched`. `started`:
    see `Reading.started`. `interactive`: all of these are servers of notebooks and the like, for people to work in."""

    links: tuple[Link, ...]
    external: bool
    started: tuple[StartedProgram, ...]
    missing: tuple[Const, ...] = ()
    interactive: bool = False


def links_of(shell: Shell, project: Project, request: Request | None) -> LinksOfScript:
    """The links of a script, and the programs that take memory in its job."""
    links: list[Link] = []
    started: list[StartedProgram] = []
    missing: list[Const] = []
    external, interactive = False, True
    for run in shell.runs:
        found = tuple(launched(run, shell, project, request))
        own = any(one.link is not None and starts_program(one.link, project) for one in found)
        served = not own and _is_interactive(without_launchers(run.words)[0])
        found = () if served else found
        links += [one.link for one in found if one.link is not None and not _is_light(one.link)]
        external = external or any(one.link is None and one.trains for one in found)
        missing += [one.missing for one in found if one.missing is not None]
        program = _program(run, found)
        if program is not None:
            started.append(program)
            interactive = interactive and served
    interactive = interactive and bool(started) and not links
    return LinksOfScript(tuple(links), external, tuple(started), tuple(missing), interactive)


def _program(run: StartedCommand, found: Sequence[Launched]) -> StartedProgram | None:
    """The program of a command; None for one that takes hardly any memory, and for a job of its own."""
    places = tuple(one.link.origin for one in found if one.link is not None and one.link.submitted is None)
    if found and not places and all(one.link is not None for one in found):
        return None
    command, _ = without_launchers(run.words)
    if not places and _activates(run.words):
        return None
    starts = any(one.link is None and one.trains for one in found)
    name = command.name or word_text((command.words or run.words)[0]) or "a program"
    if not starts and _takes_little(command, name) and (not places or command.kind == "module"):
        return None
    return StartedProgram(name, run.group, places)


def _is_light(link: Link) -> bool:
    """Whether a link starts a module that trains nothing: `python -m venv`, `python -m pip`."""
    return link.kind == "module" and link.target in _light_programs().modules


def _activates(words: Sequence[Word]) -> bool:
    """`conda activate x`: a tool whose `run` starts a program does something else."""
    texts = [word_text(word) or "" for word in words[:2]]
    return bool(texts) and texts[0] in RUNNERS and not {"run", "exec"} & {*texts[1:]}


def _takes_little(command: LaunchCommand, name: str) -> bool:
    """Whether a program is known to take hardly any memory. `command`: without its launchers."""
    table = _light_programs()
    if command.kind == "module":
        return name in table.modules
    name, first = PurePosixPath(name).name, word_text(command.words[0]) if command.words else None
    return command.kind == "none" and name in table.names and first not in table.starting.get(name, ())


def _is_interactive(command: LaunchCommand) -> bool:
    """Whether a program waits for people, who run in it what no file says: `jupyter lab`, `python -m jupyter lab`."""
    table, name = _light_programs(), command.name or (word_text(command.words[0]) if command.words else None) or ""
    servers = table.interactive_modules if command.kind == "module" else table.interactive
    subcommands = servers.get(name if command.kind == "module" else PurePosixPath(name).name)
    first = word_text(command.words[0]) if command.words else None
    return subcommands is not None and (not subcommands or first in subcommands)


class _Table(Struct, frozen=True):
    """Names of commands, modules of Python, subcommands of commands that start other programs, and of servers that
    people work in (none: whatever follows), by their commands and by their modules."""

    names: frozenset[str]
    modules: frozenset[str]
    starting: dict[str, list[str]]
    interactive: dict[str, list[str]]
    interactive_modules: dict[str, list[str]]


@lru_cache(maxsize=1)
def _light_programs() -> _Table:
    table = json.loads((Path(__file__).parent / "light_programs.json").read_text(encoding="utf-8"))
    apart = ("modules", "starting", "interactive", "interactive modules")
    kinds = [kind for kind in table if kind not in ("comment", *apart)]
    named = frozenset(name for kind in kinds for name in table[kind])
    modules, starting, interactive, started_as_modules = (table[kind] for kind in apart)
    return _Table(named, frozenset(modules), starting, interactive, started_as_modules)


def starts_program(link: Link, project: Project) -> bool:
    """Whether a link starts a program, a sweep or a tool that is read: a module counts if it is in the project."""
    path = link.target.replace(".", "/")
    is_module = link.kind == "module" and any(project.exists(f"{base}{path}.py") for base in ("", "src/"))
    return is_module or link.kind in ("program", "sweep", "command")
