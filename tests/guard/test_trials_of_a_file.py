"""`guard.optuna(objective, job=FILE)`: a real preflight reads the search, a real Optuna runs it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from preflight.guard import laws, trials
from preflight.guard.small_card import SmallCard

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDY = "scripts/tune_max.py"
LARGE = {"model.name": "microsoft/deberta-v3-large", "tok.max_length": 512, "train.batch_size": 64}
SMALL = {"model.name": "bert-base-uncased", "tok.max_length": 128, "train.batch_size": 8}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The study of the incident, whose training is not run; the current directory is its own."""
    shutil.copytree(EXAMPLES / "incidents" / "optuna-hpo-gpu-oom", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(laws.COMMAND, f"{sys.executable} -m preflight")
    monkeypatch.setattr(laws, "_answers", {})
    monkeypatch.setattr(laws, "_told", set())
    spec = importlib.util.spec_from_file_location("tune_max", tmp_path / STUDY)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(program: ModuleType, folder: Path, *chosen: dict[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The trials of these parameters, and those that came to their training."""
    ran: list[dict[str, Any]] = []

    def trained(cfg: dict[str, Any], trial: Any) -> float:
        ran.append(cfg)
        return 0.5

    vars(program)["run_training_eval"] = trained
    study = optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}")
    for one in chosen:
        study.enqueue_trial({"train.grad_accum": 1, **one})
    study.optimize(trials.optuna(program.objective, job=STUDY), n_trials=len(chosen))
    return study.trials, ran


def test_each_trial_is_judged_by_what_the_file_says_of_it(program: ModuleType, tmp_path: Path) -> None:
    (large, small, again), ran = run(program, tmp_path, LARGE, SMALL, LARGE)
    assert [one.state.name for one in (large, small, again)] == ["PRUNED", "COMPLETE", "PRUNED"]
    assert [one["model"]["name"] for one in ran] == ["bert-base-uncased"]
    assert large.user_attrs["preflight.over"] > 0 > small.user_attrs["preflight.over"]
    assert large.user_attrs["preflight.expected"] > 24 * 2**30 > small.user_attrs["preflight.high"]
    assert again.user_attrs["preflight.expected"] == large.user_attrs["preflight.expected"]
    assert {"optim.lr", "seed"} - set(large.params) == {"optim.lr"}  # it was pruned before the others were suggested


def test_a_loop_that_asks_and_tells(program: ModuleType) -> None:
    study = optuna.create_study()
    study.enqueue_trial({"train.grad_accum": 1, **LARGE})
    asked = study.ask()
    own = asked.suggest_categorical
    with trials.trial(asked, job=Path(STUDY)) as outcome:
        outcome.value = program.objective(asked)
    assert asked.suggest_categorical == own
    study.tell(asked, *outcome.told)
    assert study.trials[0].state.name == "PRUNED"
    assert study.trials[0].user_attrs["preflight.low"] > 24 * 2**30


def test_a_file_that_says_nothing_judges_nothing(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / STUDY).write_text("x = 1\n")
    (one, two), ran = run(program, tmp_path, LARGE, SMALL)
    assert [one.state.name, two.state.name] == ["COMPLETE", "COMPLETE"]
    assert len(ran) == 2
    assert capsys.readouterr().err.count("the job is not judged") == 1


def test_memory_that_runs_out_all_the_same_is_caught(program: ModuleType, tmp_path: Path) -> None:
    import torch

    def objective(trial: Any) -> float:
        trial.suggest_int("seed", 1, 2)
        return float(torch.ones(2**22).sum())

    study = optuna.create_study()
    with SmallCard("1MiB"):
        study.optimize(trials.optuna(objective, job=STUDY), n_trials=1)
    assert study.trials[0].user_attrs["preflight.oom"] == "allocator"


def test_a_file_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(FileNotFoundError, match=r"nope\.py.*there is no such file"):
        trials.optuna(lambda trial: 0.0, job="nope.py")


def test_what_a_job_leaves_open_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(laws.COMMAND, f"{sys.executable} -m preflight")
    monkeypatch.setattr(laws, "_told", set())
    for batch in (8, 16):
        assert laws.need_of({"model.name": "bert-base-uncased", "train.batch_size": batch}, None) is None
    said = capsys.readouterr().err
    assert said == "preflight guard: the job is not judged: its need is not known without train.seq_len\n"
