"""Registry of dialects: which reader reads a file. A dialect is imported only if a file may belong to it.

Other distributions add dialects by entry points of the group `preflight.dialects`. They are asked last.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Protocol, cast

from preflight.vocabulary.extensions import DIALECTS as GROUP
from preflight.vocabulary.extensions import distinct, installed, loaded, wrong
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source


class Dialect(Protocol):
    """The interface of a dialect's module; see `preflight.vocabulary.reading`."""

    NAME: str

    def recognises(self, source: Source, project: Project) -> bool: ...

    def read(self, source: Source, call: Call | None, project: Project) -> Reading: ...


YAML, SHELL, PYTHON = (
    (".yaml", ".yml"),
    (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".job", ".batch", ".zsh", ""),
    (".py",),
)

DIALECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("wandb", (*YAML, ".json")),
    ("compose", YAML),
    ("kubernetes", YAML),
    ("skypilot", YAML),
    ("slurm", SHELL),
    ("optuna", PYTHON),
    ("hydra", YAML),
    ("marimo", PYTHON),
    ("transformers_args", (*YAML, ".json")),
    ("program", PYTHON),
    ("python_launcher", PYTHON),
    ("makefile", (".mk",)),
    ("justfile", (".just",)),
    ("notebook", (".ipynb",)),
    ("snakefile", (".smk",)),
)
"""Name of a dialect and the suffixes of its files, the most specific dialect first."""

MARKS: Mapping[str, str] = {"marimo": "@app.cell"}
"""Name of a dialect -> a text that each of its files has: without it the dialect's module is not imported."""

NAMES: Mapping[str, str] = {
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "justfile": "justfile",
    ".justfile": "justfile",
    "dvc.yaml": "dvc",
    "snakefile": "snakefile",
}
"""Name of a file in lower case -> the dialect that it belongs to, whatever its suffix."""

HOMES: Mapping[str, str] = {
    "wandb": "preflight.dialects.wandb.reader",
    "compose": "preflight.dialects.containers.compose",
    "kubernetes": "preflight.dialects.containers.kubernetes",
    "slurm": "preflight.dialects.slurm.reader",
    "optuna": "preflight.dialects.optuna.reader",
    "hydra": "preflight.dialects.hydra.reader",
    "transformers_args": "preflight.frameworks.reader",
    "program": "preflight.dialects.program.reader",
    "makefile": "preflight.dialects.recipes.makefile",
    "justfile": "preflight.dialects.recipes.justfile",
    "dvc": "preflight.dialects.recipes.dvc",
    "notebook": "preflight.dialects.notebook.reader",
    "marimo": "preflight.dialects.notebook.marimo",
    "skypilot": "preflight.dialects.recipes.skypilot",
    "snakefile": "preflight.dialects.recipes.snakefile",
    "python_launcher": "preflight.dialects.recipes.python_launcher",
    "commands": "preflight.frameworks.commands",
}
"""Name of a dialect -> its module. `commands` reads a line of a script that runs a tool, so it has no files."""

SUFFIXES = frozenset(suffix for _, suffixes in DIALECTS for suffix in suffixes)


def may_recognise(path: str) -> bool:
    """Whether a file of that name may belong to a dialect. No file is opened."""
    name, suffix = _name_and_suffix(path)
    return name in NAMES or suffix in SUFFIXES or any(suffix in one.SUFFIXES for one in added().values())


def _name_and_suffix(path: str) -> tuple[str, str]:
    """The name of a file and its suffix, in lower case; a name that starts or ends with its only dot has none."""
    name = path.rpartition("/")[2].lower()
    dot = name.rfind(".")
    return name, name[dot:] if 0 < dot < len(name) - 1 else ""


def recognise(source: Source, project: Project) -> Dialect | None:
    """The dialect of a file, None if no dialect recognises it. Raises DocumentError if the file cannot be parsed."""
    name, suffix = _name_and_suffix(source.path)
    named = NAMES.get(name)
    if named is not None:
        dialect = load(named)
        return dialect if dialect.recognises(source, project) else None
    if suffix == "" and not source.text.startswith("#!"):
        return None
    for own, suffixes in DIALECTS:
        if suffix in suffixes and MARKS.get(own, "") in source.text:
            dialect = load(own)
            if dialect.recognises(source, project):
                return dialect
    additional = (one for one in added().values() if suffix in one.SUFFIXES)
    return next((one for one in additional if one.recognises(source, project)), None)


class ProgramDialect(Dialect, Protocol):
    """The interface of the reader of Python programs, which can tell of a file that is started whether it trains."""

    def trains_when_started(self, source: Source, project: Project) -> bool: ...
    def only_evaluates(self, source: Source, project: Project) -> bool: ...


class ToolDialect(Dialect, Protocol):
    """The interface of the reader of tools' files, whose command may say which tool's a file is."""

    def told_kind(self, call: Call | None) -> str | None: ...


def started(source: Source, call: Call, project: Project) -> Dialect | None:
    """The dialect of a file that a command starts, where its name and text alone do not say what it is."""
    if source.path.endswith(".py"):
        program = cast(ProgramDialect, load("program"))
        return program if program.trains_when_started(source, project) else None
    tools = cast(ToolDialect, load("transformers_args"))
    return tools if source.path.endswith((*YAML, ".json")) and tools.told_kind(call) else None


def only_evaluates(source: Source, project: Project) -> bool:
    """Whether a file that a command starts is a program that uses a model and trains none."""
    return cast(ProgramDialect, load("program")).only_evaluates(source, project)


class AddedDialect(Dialect, Protocol):
    """The interface of another distribution's dialect, which also lists the suffixes of its files (".toy")."""

    SUFFIXES: tuple[str, ...]


@lru_cache(maxsize=1)
def added() -> Mapping[str, AddedDialect]:
    """Dialects of other distributions by name. Raises ExtensionError."""
    points = installed(GROUP)
    found = [(one, loaded(one)) for one in points]
    for one, module in found:
        if problem := _problem(module):
            raise wrong(one, problem)
    dialects = ((one, cast(AddedDialect, module)) for one, module in found)
    return distinct(((module.NAME, module, one) for one, module in dialects), HOMES, "the dialect")


def _problem(module: object) -> str | None:
    """Why a module is not a dialect, None if it is one."""
    suffixes, name = getattr(module, "SUFFIXES", None), getattr(module, "NAME", None)
    if not isinstance(name, str) or not name:
        return "it has no text NAME"
    if not isinstance(suffixes, tuple) or not all(isinstance(one, str) and one[:1] == "." for one in suffixes):
        return 'it has no tuple SUFFIXES of texts like ".yaml"'
    lacks = [one for one in ("recognises", "read") if not callable(getattr(module, one, None))]
    return f"it has no function {lacks[0]}" if lacks else None


@lru_cache(maxsize=32)
def load(name: str) -> Dialect:
    """Imports the module of a dialect."""
    return cast(Dialect, import_module(HOMES[name]))
