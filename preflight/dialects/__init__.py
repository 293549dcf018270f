"""Registry of dialects: which reader a file is for. A dialect is imported only when a file may be of its kind."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePosixPath
from typing import Protocol, cast

from preflight.dialects.reading import Call, Reading
from preflight.documents.base import Source
from preflight.project import Project


class Dialect(Protocol):
    """What a module of this package offers; see `preflight.dialects.reading`."""

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
"""Module and the suffixes of its files, the most specific reader first."""

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
    return cast(Dialect, import_module(f"preflight.dialects.{name}"))
