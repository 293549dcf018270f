"""What the readers of recipes find: the commands of a file, in a folder with a training program."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from preflight.dialects import recognise
from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Unknown

TRAIN = """
import argparse
import torch
from torch.utils.data import DataLoader
from data import dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--workers", type=int, default=3)
args = parser.parse_args()
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers):
    model(batch).mean().backward()
    optimizer.step()
"""


def _project(name: str, text: str, folder: Path, files: dict[str, str] | None) -> Project:
    for path, content in {"train.py": TRAIN, **(files or {}), name: dedent(text)}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    batch = Batch(folder, Settings(), None, (name,), ())
    return engine.setup(batch, engine.CheckOptions(), folder)[0]


def commands(name: str, text: str, folder: Path, files: dict[str, str] | None = None) -> list[str]:
    """The programs that a file starts, with their words. An unknown word is `?`. None of them if nobody reads it."""
    project = _project(name, text, folder, files)
    source = project.source(name)
    dialect = recognise(source, project)
    if dialect is None:
        return []
    found = []
    for link in dialect.read(source, None, project).links:
        words = [link.target]
        for word in link.words:
            value = word.value
            said = "" if value is None else "?"
            if isinstance(value, Const) and not isinstance(value.value, Unknown):
                said = str(value.value)
            words.append(word.prefix + said)
        found.append(" ".join(words))
    return found


def unread(name: str, text: str, folder: Path, files: dict[str, str] | None = None) -> bool:
    """Whether the reading of a file says that a part of it was not followed."""
    project = _project(name, text, folder, files)
    source = project.source(name)
    dialect = recognise(source, project)
    return dialect is not None and dialect.read(source, None, project).unread is not None


def batches(name: str, text: str, folder: Path, files: dict[str, str] | None = None) -> list[tuple[object, str]]:
    """The batch of each job of a file, and the place `path:line` that states it."""
    project = _project(name, text, folder, files)
    batch = Batch(folder, Settings(), None, (name,), ())
    project, asked = engine.setup(batch, engine.CheckOptions(), folder)
    found: list[tuple[object, str]] = []
    for one in engine.check(project, asked).studies:
        box = next(each.box for each in one.space.boxes if each.worst is one.space.worst)
        origin = box.fields["train.batch_size"].origin
        assert origin is not None
        line = project.source(origin.path).line_column(origin.span.start)[0]
        found.append((one.space.worst.job.train.batch_size, f"{origin.path}:{line}"))
    return found
