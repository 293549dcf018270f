"""The guard around an objective: where it goes in, and where it does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from preflight.fixes.edits import edits_in
from preflight.fixes.guarded import GUARDED
from preflight.study.build import build
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import splice

STUDY = '''\
"""A search."""

import optuna  # 4 or later
import torch
from torch.utils.data import DataLoader


def objective(trial):
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader([], batch_size=trial.suggest_int("batch", 4, 64)):
        model(batch).sum().backward()
        optimizer.step()


study = optuna.create_study()
study.optimize(objective, n_trials=20)
'''
LAST = "from torch.utils.data import DataLoader\n"


def wrapped(text: str, root: Path) -> str | None:
    (root / "tune.py").write_bytes(text.encode())
    project = Project(root, Settings())
    (study,), _ = build(["tune.py"], project)
    edits = edits_in(Change(GUARDED, True), study, project)
    if edits is None:
        return None
    found = splice(text, list(edits))
    ast.parse(found)
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_import_goes_behind_the_others(newline: str, tmp_path: Path) -> None:
    expected = STUDY.replace(LAST, f"{LAST}from preflight import guard\n").replace(
        "optimize(objective,", "optimize(guard.optuna(objective),"
    )
    assert wrapped(STUDY.replace("\n", newline), tmp_path) == expected.replace("\n", newline)


def test_by_keyword_with_the_import_that_is_there(tmp_path: Path) -> None:
    text = STUDY.replace(LAST, f"{LAST}from preflight import guard\n").replace("(objective,", "(func=objective,")
    assert wrapped(text, tmp_path) == text.replace("func=objective", "func=guard.optuna(objective)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST, f"{LAST}import guard\n"),
        ("batch in", "guard in"),
        (LAST, f"{LAST.strip()}; print()\n"),
        ("study.optimize", "optuna.create_study().optimize(objective)\nstudy.optimize"),
    ],
    ids=["another module", "a variable", "a statement behind the import", "two searches"],
)
def test_left_alone(old: str, new: str, tmp_path: Path) -> None:
    assert wrapped(STUDY.replace(old, new), tmp_path) is None
