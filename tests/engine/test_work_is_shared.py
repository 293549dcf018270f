"""What is judged once: spaces that say the same, combinations whose verdict is known, parts of jobs that stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.engine import files, settings
from preflight.engine.check import CheckOptions, CheckSetup, again, analyse, setup
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.machines.gpus import find_gpu
from preflight.memory.device.step import run
from preflight.space import judge as judging
from preflight.vocabulary import job as jobs
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.tracing import SHIPPED_ONLY

Write = Callable[[dict[str, str]], Path]
GPU = find_gpu("A100-80GB")

PROGRAM = """
import argparse

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--length", type=int, default=512)
args = parser.parse_args()
data = tokenizer(texts, padding="max_length", max_length=args.length)
arguments = TrainingArguments("out", per_device_train_batch_size=args.batch_size, bf16=True)
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), arguments, train_dataset=data).train()
"""
SCRIPT = """#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --array=0-3
SIZES=(1 2 4 {last})
python train.py --length ${{LENGTH:-512}} --batch_size ${{SIZES[$SLURM_ARRAY_TASK_ID]}}
"""


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """The studies whose space is judged from now on."""
    found: list[Study] = []
    judge = judging.judge

    def counting(study: Study, *args: object, **options: object) -> object:
        found.append(study)
        return judge(study, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "judge", counting)
    return found


def scripts(project: Write, *last: int) -> tuple[Project, CheckSetup]:
    files = {f"jobs/job{number}.sbatch": SCRIPT.format(last=one) for number, one in enumerate(last)}
    root = project({"train.py": PROGRAM, **files})
    [batch] = batches(("jobs",), root, from_hook=False)
    return setup(batch, CheckOptions(gpu="GTX 1080 Ti"), root)


def test_scripts_that_say_the_same_are_judged_once(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = counted(monkeypatch)
    found = analyse(*scripts(project, 8, 8, 6, 8))
    assert len(found.studies) == 4
    assert len(judged) == 2
    for result in found.studies:  # each says so in its own words
        assert [one.box for one in result.space.boxes] == list(result.study.boxes)
        [why] = {one.why for one in result.space.worst.estimates.assumptions if one.field == "train.seq_len"}
        assert why.endswith(f"starts {result.study.paths[0]} may set")
        assert result.space.worst is result.space.boxes[0].worst


def test_what_an_edit_leaves_as_it_was_is_not_judged_again(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, asked = scripts(project, 8, 6, 5)
    found = analyse(opened, asked)
    judged = counted(monkeypatch)
    moved = again(found, opened.with_overlay({"train.py": f"# a comment\n{PROGRAM}"}), asked)
    assert not judged
    assert [one.space.counts for one in moved.studies] == [one.space.counts for one in found.studies]
    again(found, opened.with_overlay({"train.py": PROGRAM.replace("bf16=True", "fp16=True")}), asked)
    assert len(judged) == 3


def test_other_values_are_another_space(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis that feeds another field, a field of another value, a value that is known in another way."""
    judged = counted(monkeypatch)
    texts = {
        "a": SCRIPT.format(last=8),
        "b": SCRIPT.format(last=8).replace("--batch_size", "--length").replace("--length $", "--batch_size $", 1),
        "c": SCRIPT.format(last=8).replace(":-512", ":-256"),
        "d": SCRIPT.format(last=8).replace("${LENGTH:-512}", "512"),
    }
    root = project({"train.py": PROGRAM, **{f"jobs/{name}.sbatch": text for name, text in texts.items()}})
    [batch] = batches(("jobs",), root, from_hook=False)
    found = analyse(*setup(batch, CheckOptions(gpu="GTX 1080 Ti"), root))
    assert len(found.studies) == len(judged) == 4
    worst = [(result.space.worst.job.train, result.space.worst.estimates.verdict) for result in found.studies]
    assert [(train.batch_size, train.seq_len, verdict) for train, verdict in worst] == [
        (8, 512, "fits-if"), (512, 8, "fits-if"), (8, 256, "fits-if"), (8, 512, "fits"),
    ]  # fmt: skip


def test_the_identity_of_a_job_asks_for_changed_parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    identity = jobs._identity

    def counting(part: jobs.Part, kept: object) -> str:
        asked.append(type(part).__name__)
        return identity(part, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "_identity", counting)
    estimator = Estimator(None, SHIPPED_ONLY)
    job = build({"model.name": "gpt2", "train.batch_size": 8, "train.seq_len": 512})
    first = estimator.key(job)
    asked.clear()
    other = unchecked(job, {"train.batch_size": 16})
    assert estimator.key(other) != first
    assert asked == ["Job", "Train"]
    assert estimator.key(job) == first
    assert estimator.key(unchecked(other, {"train.batch_size": 8})) == first


def test_settings_are_looked_for_once_in_a_folder(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project({f"{folder}/part{number}.py": "" for folder in ("one", "two") for number in range(20)})
    asked: list[Path] = []
    load = settings.load

    def counting(start: Path) -> tuple[Settings, Path | None]:
        asked.append(start)
        return load(start)

    monkeypatch.setattr(files, "load", counting)
    [batch] = batches(["."], root, from_hook=False)
    assert len([name for name in batch.walked if name.endswith(".py")]) == 40
    assert len(asked) <= 3


@pytest.mark.parametrize(("sequences", "replayed"), [("dynamic", True), ("bound", False), ("exact", False)])
def test_batches_of_other_lengths_are_replayed_for_an_expected_need_where_they_change_it(
    sequences: str, replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"model.name": "t5-small", "train.batch_size": 2, "train.seq_len": 96, "train.sequences": sequences}
    job = build({**values, "train.target_len": 32})
    whole = Estimator(GPU, SHIPPED_ONLY).full(job).device
    asked: list[int] = []
    planned = run._planned

    def counting(prepared: Any, beside: Any, limit: int | None, earlier: Sequence[Any]) -> object:
        asked.append(len(earlier))
        return planned(prepared, beside, limit, earlier)

    monkeypatch.setattr(run, "_planned", counting)
    expected = Estimator(GPU, SHIPPED_ONLY).expected(job)
    assert whole is not None
    assert expected == whole.process.expected
    assert any(asked) is replayed
