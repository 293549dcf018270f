"""`preflight estimate --at`: one combination of a search instead of the worst."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.cli import run

PROGRAM = """
import optuna
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def objective(trial):
    name = trial.suggest_categorical("model", ["gpt2", "gpt2-medium", "gpt2-xl"])
    if name == "gpt2-xl":
        batch = trial.suggest_categorical("rows", ["1", "2"])
    else:
        batch = trial.suggest_int("batch", 1, 64)
    rate = trial.suggest_float("rate", 1e-5, 1e-3)
    model = AutoModelForCausalLM.from_pretrained(name)
    args = TrainingArguments("out", per_device_train_batch_size=int(batch), learning_rate=rate)
    return Trainer(model, args, train_dataset=data).train().training_loss

optuna.create_study().optimize(objective, n_trials=20)
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preflight.toml").write_text("[set]\ntrain.seq_len = 128\n")
    path = tmp_path / "study.py"
    path.write_text(PROGRAM)
    return path


def asked(path: Path, capsys: pytest.CaptureFixture[str], *at: str) -> tuple[int, dict[str, object], str]:
    status = run(["estimate", str(path), "--output-format", "json", *(f"--at={one}" for one in at)])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else {}, said.err


@pytest.mark.parametrize(
    ("at", "model", "batch"),
    [
        (("model=gpt2", "batch=7"), "gpt2", 7),
        (("model=gpt2-medium", "batch=64", "rate=1e-4"), "gpt2-medium", 64),
        (("model=gpt2-xl", "rows=2"), "gpt2-xl", 2),
        (("model=gpt2-xl", 'rows="1"', "batch=9"), "gpt2-xl", 1),
    ],
)
def test_the_job_is_that_of_the_values(
    study: Path, capsys: pytest.CaptureFixture[str], at: tuple[str, ...], model: str, batch: int
) -> None:
    status, found, said = asked(study, capsys, *at)
    assert (status, said) == (0, "")
    job = found["job"]
    assert isinstance(job, dict)
    assert (job["model"]["name"], job["train"]["batch_size"]) == (model, batch)
    stated = study.with_name("job.json")
    stated.write_text(json.dumps(job))
    _, same, _ = asked(stated, capsys)
    device, other = found["device"], same["device"]
    assert isinstance(device, dict)
    assert isinstance(other, dict)
    assert device["requested"]["expected"] == other["requested"]["expected"]


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (("modle=gpt2",), 'modle is no parameter of the search (did you mean "model"?)'),
        (("model=gpt2",), "state batch as well"),
        (("rows=2",), "state model as well"),
        (("model=gpt2", "batch=65"), "the search has no combination with model=gpt2, batch=65"),
        (("model=gpt2-xl", "rows=3"), "the search has no combination with model=gpt2-xl, rows=3"),
        (("model=gpt2", "batch=true"), "the search has no combination"),
        (("model",), "write NAME=VALUE"),
        (("model=[",), "not valid YAML"),
    ],
)
def test_what_is_no_combination_is_named(
    study: Path, capsys: pytest.CaptureFixture[str], at: tuple[str, ...], says: str
) -> None:
    status, _, said = asked(study, capsys, *at)
    assert (status, said.count("\n")) == (2, 1)
    assert says in said


def test_the_branches_are_in_the_answer(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found, _ = asked(study, capsys)
    assert found["search"] == [
        {"fixed": {}, "parameters": ["model", "batch"]},
        {"fixed": {"model": "gpt2-xl"}, "parameters": ["rows"]},
    ]


def test_a_job_that_is_no_search_has_no_combinations(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study.write_text(PROGRAM.replace("optuna.create_study().optimize(objective, n_trials=20)", "train()"))
    one = study.with_name("train.py")
    one.write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("out"), train_dataset=x).train()\n'
    )
    for target in (one, "gpt2"):
        status, _, said = asked(Path(target), capsys, "batch=1")
        assert status == 2
        assert "is no search" in said
    _, found, _ = asked(one, capsys)
    assert "search" not in found
