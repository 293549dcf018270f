"""W&B sweeps as text, and what a reading of them holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from preflight.dialects.wandb import reader as wandb
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Link, Problem, Reading
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Domain, Ref, Unknown, evaluate

HEAD = "program: train.py\nmethod: random\nparameters:\n"


def project(root: Path, files: Mapping[str, str]) -> Project:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(root, Settings())


def read(root: Path, text: str, **files: str) -> tuple[Reading, Source]:
    found = project(root, {"sweep.yaml": text, "train.py": "import torch\n", **files})
    source = found.source("sweep.yaml")
    assert wandb.recognises(source, found)
    return wandb.read(source, None, found), source


def parameter(root: Path, body: str) -> tuple[Reading, Source]:
    return read(root, HEAD + f"  x: {body}\n")


def domain(reading: Reading, name: str = "x") -> Domain:
    [axis] = [axis for axis in reading.axes if axis.name == name]
    return axis.domain


def place(source: Source, problem: Problem) -> tuple[int, int, str]:
    span = problem.origin.span
    return (*source.line_column(span.start), source.text[span.start : span.end])


def only(reading: Reading) -> Link:
    [link] = reading.links
    return link


def words(link: Link) -> list[str]:
    shown = []
    for one in link.words:
        value = "" if one.value is None else f"@{one.value.name}" if isinstance(one.value, Ref) else None
        if value is None:
            constant = evaluate(one.value) if one.value is not None else None
            value = "?" if isinstance(constant, Unknown) else str(constant)
        shown.append(f"{one.hydra_prefix}{one.prefix}{value}")
    return shown
