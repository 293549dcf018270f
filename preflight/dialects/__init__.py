"""Registry of dialects: which reader a file is for. A dialect is imported only when a file may be of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import PurePosixPath
from typing import Protocol, cast

from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source


class Dialect(Protocol):
    """What a module of this package offers; see `preflight.vocabulary.reading`."""

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
    return PurePosixPath(path).suffix.lower() in SUFFIXES


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
    return None


def load(name: str) -> Dialect:
    """A dialect's module."""
    return cast(Dialect, import_module(HOMES[name]))
