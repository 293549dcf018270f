"""Reads programs given as text, for tests of libraries and dialects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from preflight.dialects.program import reader as program
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Expr, Unknown, Value, evaluate


def read_program(text: str, root: Path, call: Call | None = None, **files: str) -> Reading:
    """The reading of `train.py` with that text; `files` are further modules or data, `__` in a name is a dot."""
    (root / "train.py").write_text(dedent(text))
    for name, other in files.items():
        (root / name.replace("__", ".")).write_text(dedent(other))
    project = Project(root, Settings())
    return program.read(project.source("train.py"), call, project)


def values(reading: Reading, given: Mapping[str, Value] | None = None) -> dict[str, Value]:
    """Job field -> what it comes to: by rank, then order, with the parameters' defaults or the values given."""
    env: dict[str, Expr] = {p.name: p.default for p in reading.parameters}
    env |= {name: Const(value) for name, value in (given or {}).items()}
    found: dict[str, Value] = {}
    for binding in sorted(reading.bindings, key=lambda binding: binding.rank):
        value = evaluate(binding.expr, env)
        if value is not None:
            found[binding.field] = value
    return found


def facts(reading: Reading) -> dict[str, Value]:
    """Fact -> value."""
    return {fact.name: fact.value for fact in reading.facts}


def text_at(reading: Reading, field: str, root: Path) -> str:
    """The text that the winning binding of a field points at."""
    best = max((b for b in reading.bindings if b.field == field), key=lambda b: b.rank)
    assert best.origin is not None
    return (root / best.origin.path).read_text()[best.origin.span.start : best.origin.span.end]


def is_unknown(value: Value) -> bool:
    """Whether a value is not known."""
    return isinstance(value, Unknown)


FLAGS_LOOP = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=args.batch_size, num_workers=args.workers):
    model(x).sum().backward()
    opt.step()
"""
"""A loop by hand with flags of argparse: --batch_size, --workers, --amp."""
