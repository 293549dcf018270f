"""The size of a decoded sample by runs of the same program: used where no file says it, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.cli import run
from preflight.engine.check import CheckOptions
from preflight.engine.launched import launched
from preflight.store import database
from preflight.store.records import canonical, hash_of, kept_run
from preflight.store.runs import add
from preflight.vocabulary.watched import WatchedRank, WatchedRun

PROGRAM = """
import argparse, torch
from transformers import BertConfig, BertForSequenceClassification
from scenes import Scenes
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--lr", type=float, default=1e-4)
parser.add_argument("--data", default="a")
args = parser.parse_args()
model = BertForSequenceClassification(BertConfig())
loader = torch.utils.data.DataLoader(Scenes(args.data), batch_size=args.batch_size, num_workers=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for x, y in loader:
    model(input_ids=x, labels=y).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RAN = ("python", "train.py", "--batch_size", "8", "--data", "a")


@pytest.fixture
def folder(project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(database.PLACE, str(tmp_path / "runs.sqlite"))
    return project({"train.py": PROGRAM})


def ran(folder: Path, training: int = 4096, **more: int) -> None:
    """A run of the program was recorded."""
    known = launched(RAN, folder, CheckOptions())
    assert known is not None
    assert known.data
    rank = WatchedRank(0, samples={"sample_bytes": training, **more})
    add(kept_run(WatchedRun(0, 1.0, (rank,)), known.job, None, known.data))


def size_of(folder: Path, *words: str) -> object:
    known = launched(("python", "train.py", *words), folder, CheckOptions(calibration=True))
    assert known is not None
    return known.job.data.sample_bytes


def test_it_is_known_at_other_batches_and_rates(folder: Path) -> None:
    assert size_of(folder, "--data", "a") is None
    ran(folder)
    assert size_of(folder, "--data", "a", "--batch_size", "64") == 4096
    assert size_of(folder, "--batch_size=64", "--data=a", "--lr", "0.1") == 4096


def test_what_was_learnt_leaves_the_job_the_same(folder: Path) -> None:
    before = launched(RAN, folder, CheckOptions())
    ran(folder)
    after = launched(RAN, folder, CheckOptions(calibration=True))
    assert before is not None
    assert after is not None
    assert after.job.data.sample_bytes == 4096
    assert hash_of(canonical(before.job)) == hash_of(canonical(after.job))


def test_other_data_are_not_known(folder: Path) -> None:
    ran(folder)
    assert size_of(folder, "--data", "b") is None
    assert size_of(folder) is None  # the program may have another default tomorrow
    (folder / "other.py").write_text(PROGRAM)
    known = launched(("python", "other.py", "--data", "a"), folder, CheckOptions(calibration=True))
    assert known is not None
    assert known.job.data.sample_bytes is None


def test_what_the_files_say_stays(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.preflight]\nset.data.sample_bytes = 7\n")
    ran(folder)
    assert size_of(folder, "--data", "a") == 7


def test_two_sizes_are_none(folder: Path) -> None:
    ran(folder, validation_sample_bytes=40960)
    assert size_of(folder, "--data", "a") is None


def test_the_check_says_so_and_can_be_told_not_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    ran(folder)
    (folder / "job.sh").write_text("#!/bin/bash\n#SBATCH --mem=16G\npython train.py --data a --batch_size 32\n")
    words = ("check", "job.sh", "--explain")
    run([*words])
    shown = "".join(capsys.readouterr())
    assert "a recorded run of the program" in shown
    assert "data.sample_bytes = 4096 was measured in 1 run of its program" in shown
    run([*words, "--no-calibration"])
    assert "measured" not in "".join(capsys.readouterr())
