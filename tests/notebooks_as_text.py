"""Notebooks for tests, as Jupyter writes them, and what preflight reads from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Study
from preflight.vocabulary.values import Unknown, evaluate

IMPORTS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
MODEL = 'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
TRAINS = 'args = TrainingArguments("out", per_device_train_batch_size=BS)\nTrainer(model, args).train()\n'


def notebook(
    *cells: str, kind: str = "code", metadata: object = None, tags: Sequence[str] = (), lines: bool = True
) -> str:
    """A notebook of nbformat 4. `tags` are those of the second cell."""
    made: list[dict[str, object]] = []
    for number, text in enumerate(cells):
        source = text.splitlines(keepends=True) if lines else text
        own = {"tags": list(tags)} if tags and number == 1 else {}
        made.append({"cell_type": kind, "metadata": own, "outputs": [], "source": source})
    language = {"kernelspec": {"language": "python", "name": "python3"}}
    return json.dumps({"cells": made, "metadata": metadata or language, "nbformat": 4}, indent=1)


def _write(files: dict[str, str], folder: Path) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)


def built(text: str, folder: Path, files: dict[str, str] | None = None, name: str = "train.ipynb") -> list[Study]:
    """The studies of a notebook as they are read: nothing is estimated, and no rule is asked."""
    _write({**(files or {}), name: text}, folder)
    return list(build([name], Project(folder, Settings()))[0])


def studies(text: str, folder: Path, files: dict[str, str] | None = None, name: str = "train.ipynb") -> list[Study]:
    """The studies of a notebook as they are judged: their GPU and their model are those of the estimate."""
    _write({**(files or {}), name: text}, folder)
    batch = Batch(folder, Settings(), None, (name,), ())
    project, asked = engine.setup(batch, engine.CheckOptions(), folder)
    return [one.study for one in engine.check(project, asked).studies]


def bound(study: Study, field: str) -> Bound:
    return study.boxes[0].fields[field]


def value(study: Study, field: str) -> object:
    """The value of a field, "?" if it is unknown."""
    found = evaluate(bound(study, field).expr)
    return "?" if isinstance(found, Unknown) else found
