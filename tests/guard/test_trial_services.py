"""Runs of MLflow and W&B beside a trial: which of them the guard ends, with libraries that pretend."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import HANGS

from preflight.guard import trials
from preflight.guard.laws import Need
from preflight.guard.services import PARENT

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)


class MlFlow:
    """As the module: a stack of runs."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.ended: list[tuple[str, str, list[str]]] = []
        self.broken = False

    def start(self, name: str) -> None:
        parent = {PARENT: self.stack[-1].info.run_id} if self.stack else {}
        self.stack.append(SimpleNamespace(info=SimpleNamespace(run_id=name), data=SimpleNamespace(tags=parent)))

    def active_run(self) -> Any:
        return self.stack[-1] if self.stack else None

    def set_tag(self, name: str, value: str) -> None:
        if self.broken:
            raise ConnectionError("the server\nis away")
        self.stack[-1].data.tags[name] = value

    def end_run(self, status: str = "FINISHED") -> None:
        run = self.stack.pop()
        tags = sorted(name for name in run.data.tags if name.startswith("preflight"))
        self.ended.append((run.info.run_id, status, tags))


class Run:
    """Of W&B."""

    def __init__(self) -> None:
        self.status: int | None = None

    def finish(self, exit_code: int) -> None:
        self.status = exit_code


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> MlFlow:
    found = MlFlow()
    monkeypatch.setitem(sys.modules, "mlflow", found)
    return found


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(run=None)
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


@pytest.fixture
def study(tmp_path: Path) -> Any:
    return optuna.create_study(storage=f"sqlite:///{tmp_path / 'study.db'}")


def test_what_began_in_the_trial_is_ended_and_the_programs_own_stays(study: Any, mlflow: MlFlow, wandb: Any) -> None:
    inner = Run()

    def objective(trial: Any) -> float:
        mlflow.start("trial")
        mlflow.start("fold")
        wandb.run = inner
        raise MemoryError

    mlflow.start("sweep")
    mlflow.start("study")
    study.optimize(trials.optuna(objective), n_trials=1)
    assert mlflow.ended == [("fold", "FAILED", ["preflight.oom"]), ("trial", "FAILED", ["preflight.oom"])]
    assert inner.status == 1
    wandb.run = outer = Run()
    study.optimize(trials.optuna(lambda trial: mlflow.end_run() or (_ for _ in ()).throw(MemoryError())), n_trials=1)
    assert [run.info.run_id for run in mlflow.stack] == ["sweep"]  # the program ended the study's, and not that one
    assert outer.status is None


def test_ask_and_tell(study: Any, mlflow: MlFlow, wandb: Any) -> None:
    asked = study.ask()
    with trials.trial(asked) as outcome:
        mlflow.start("trial")
        wandb.run = inner = Run()
        raise MemoryError
    assert outcome.pruned
    assert mlflow.ended == [("trial", "FAILED", ["preflight.oom"])]
    assert inner.status == 1


@pytest.mark.parametrize("own", [False, True], ids=["by its need", "by the program"])
def test_a_trial_that_is_pruned_after_its_run_began(
    own: bool, study: Any, mlflow: MlFlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file says what a trial needs as soon as its parameters are suggested."""
    need = Need(100, 100, 100, 10, "exceeds")
    monkeypatch.setattr(trials.Search, "at", lambda self, values: ({}, need) if values and not own else None)

    def objective(trial: Any) -> float:
        mlflow.start("trial")
        trial.suggest_int("batch_size", 1, 8)
        raise optuna.TrialPruned

    (tmp_path / "tune.py").write_text("")
    study.optimize(trials.optuna(objective, job=tmp_path / "tune.py"), n_trials=1)
    assert study.trials[0].state.name == "PRUNED"
    assert mlflow.ended == ([] if own else [("trial", "FAILED", ["preflight.pruned"])])


def test_a_service_that_is_away_is_one_line(
    study: Any, mlflow: MlFlow, wandb: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow.broken = True

    def objective(trial: Any) -> float:
        mlflow.start(f"trial {trial.number}")
        wandb.run = SimpleNamespace(finish=None)
        raise MemoryError

    study.optimize(trials.optuna(objective), n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["PRUNED", "PRUNED"]
    assert [name for name, *_ in mlflow.ended] == ["trial 0", "trial 1"]
    said = [line for line in capsys.readouterr().err.splitlines() if "cannot be ended" in line]
    assert said[:2] == [
        "preflight guard: a run of MLflow cannot be ended: ConnectionError: the server",
        "preflight guard: a run of W&B cannot be ended: TypeError: 'NoneType' object is not callable",
    ]


def test_a_run_of_wandb_stays_where_trials_run_at_once(study: Any, wandb: Any) -> None:
    """W&B has one run for the process: which of the trials began it, nobody knows."""
    both = threading.Barrier(2, timeout=HANGS)
    run = Run()

    def objective(trial: Any) -> float:
        both.wait()
        if trial.number:
            wandb.run = run
            both.wait()
            return 0.0
        both.wait()
        raise MemoryError

    study.optimize(trials.optuna(objective), n_trials=2, n_jobs=2)
    assert sorted(trial.state.name for trial in study.trials) == ["COMPLETE", "PRUNED"]
    assert run.status is None
