"""Argument files given as text, for tests of their readers."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from preflight.frameworks import reader as transformers_args
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading, Word
from preflight.vocabulary.settings import Settings


def read(name: str, text: str, root: Path, words: tuple[Word, ...] | None = None) -> Reading:
    """The reading of a file with that text; `words` are the command line that starts it."""
    (root / name).write_text(dedent(text))
    project = Project(root, Settings())
    source = project.source(name)
    assert transformers_args.recognises(source, project)
    return transformers_args.read(source, None if words is None else Call("run.sh", words), project)


def place(reading: Reading, field: str, root: Path) -> str:
    """The text that the winning binding of a field stands at."""
    best = max((b for b in reading.bindings if b.field == field), key=lambda b: b.rank)
    assert best.origin is not None, f"{field} has no place"
    text = (root / best.origin.path).read_text()
    return text[best.origin.span.start : best.origin.span.end]
