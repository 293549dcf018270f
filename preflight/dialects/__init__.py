"""Registry of dialects: which reader a file is for. A dialect is imported only when a file may be of its kind.

Other distributions add dialects by entry points of the group `preflight.dialects`, asked after preflight's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import PurePosixPath
from typing import Protocol, cast

from preflight.vocabulary.extensions import DIALECTS as GROUP
from preflight.vocabulary.extensions import distinct, installed, loaded, wrong
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source


class Dialect(Protocol):
    """What the module of a dialect offers; see `preflight.vocabulary.reading`."""

    NAME: str

    def recognises(self, source: Source, project: Project) -> bool: ...

    def read(self, source: Source, call: Call | None, project: Project) -> Reading: ...


YAML, SHELL, PYTHON = (".yaml", ".yml"), (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".job", ".batch", ""), (".py",)

DIALECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("wandb", (*YAML, ".json")),
    ("compose", YAML),
    ("kubernetes", YAML),
    ("slurm", SHELL),
    ("optuna", PYTHON),
    ("hydra", YAML),
    ("transformers_args", (*YAML, ".json")),
    ("program", PYTHON),
)
"""Name and the suffixes of its files, the most specific reader first."""

HOMES: Mapping[str, str] = {
    "wandb": "preflight.dialects.wandb.reader",
    "compose": "preflight.dialects.containers.compose",
    "kubernetes": "preflight.dialects.containers.kubernetes",
    "slurm": "preflight.dialects.slurm.reader",
    "optuna": "preflight.dialects.optuna.reader",
    "hydra": "preflight.dialects.hydra.reader",
    "transformers_args": "preflight.frameworks.reader",
    "program": "preflight.dialects.program.reader",
    "commands": "preflight.frameworks.commands",
}
"""Module of each; a line of a script that runs a tool (`commands`) has no file of its own."""

SUFFIXES = frozenset(suffix for _, suffixes in DIALECTS for suffix in suffixes)


def may_recognise(path: str) -> bool:
    """Whether a file of that name can be of any dialect at all (no file is opened)."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in SUFFIXES or any(suffix in one.SUFFIXES for one in added().values())


def recognise(source: Source, project: Project) -> Dialect | None:
    """The dialect of a file, None where no reader is sure of it. Raises DocumentError for what cannot be parsed."""
    suffix = PurePosixPath(source.path).suffix.lower()
    if suffix == "" and not source.text.startswith("#!"):
        return None
    for name, suffixes in DIALECTS:
        if suffix in suffixes:
            dialect = load(name)
            if dialect.recognises(source, project):
                return dialect
    others = (one for one in added().values() if suffix in one.SUFFIXES)
    return next((one for one in others if one.recognises(source, project)), None)


class AddedDialect(Dialect, Protocol):
    """What the module of another distribution offers: the suffixes of its files (".toy") as well."""

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
    """What a module lacks to be a dialect."""
    suffixes, name = getattr(module, "SUFFIXES", None), getattr(module, "NAME", None)
    if not isinstance(name, str) or not name:
        return "it has no text NAME"
    if not isinstance(suffixes, tuple) or not all(isinstance(one, str) and one[:1] == "." for one in suffixes):
        return 'it has no tuple SUFFIXES of texts like ".yaml"'
    lacks = [one for one in ("recognises", "read") if not callable(getattr(module, one, None))]
    return f"it has no function {lacks[0]}" if lacks else None


def load(name: str) -> Dialect:
    """A dialect's module."""
    return cast(Dialect, import_module(HOMES[name]))
