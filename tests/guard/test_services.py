"""The guard beside real services: Optuna on PostgreSQL, MLflow on SQLite, W&B offline."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from guard.wandb_files import offline_runs
from guard.wandb_server import serving
from processes import HANGS

from preflight.guard import trials
from preflight.guard.small_card import SmallCard

pytestmark = pytest.mark.integration


def objective(trial: Any) -> float:
    width = trial.suggest_categorical("width", [64, 1024])
    loss = torch.nn.Linear(width, width)(torch.randn(1024, width)).pow(2).mean()
    loss.backward()
    return float(loss.detach())


def _program(name: str) -> str | None:
    """A program of PostgreSQL; Debian has them in no directory of the path."""
    return shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a server of this test's own. It does not run as root."""
    pytest.importorskip("psycopg2")
    server, initdb = (_program(name) for name in ("postgres", "initdb"))
    if server is None or initdb is None:
        pytest.skip("no PostgreSQL")
    user: dict[str, Any] = {"user": "nobody"} if os.getuid() == 0 else {}
    folder = tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    if user:
        shutil.chown(folder, "nobody")
    place = f"{folder}/data"
    subprocess.run([initdb, "-D", place, "-A", "trust", "-U", "ada"], check=True, capture_output=True, cwd="/", **user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [server, "-D", place, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"]
    process = subprocess.Popen(words, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        time.sleep(0.5)
        yield f"postgresql+psycopg2://ada@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # fast: it does not wait for its clients
        process.wait(HANGS)
        shutil.rmtree(folder, ignore_errors=True)


def test_trials_on_postgresql(postgres: str) -> None:
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(storage=postgres, sampler=optuna.samplers.RandomSampler(seed=0))
    with SmallCard("4MiB"):
        study.optimize(trials.optuna(objective), n_trials=6)
    again = optuna.load_study(study_name=study.study_name, storage=postgres)
    ended = {trial.params["width"]: trial.state.name for trial in again.trials}
    assert ended == {64: "COMPLETE", 1024: "PRUNED"}
    pruned = next(trial for trial in again.trials if trial.state.name == "PRUNED")
    assert pruned.user_attrs["preflight.oom"] == "allocator"
    assert pruned.user_attrs["preflight.oom_config"] == {"width": "1024"}


def test_a_run_of_mlflow_that_began_in_the_trial_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optuna, mlflow = pytest.importorskip("optuna"), pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def logged(trial: Any) -> float:
        mlflow.start_run(nested=True, run_name=f"trial {trial.number}")
        mlflow.log_param("number", trial.number)
        value = objective(trial)
        mlflow.end_run()
        return value

    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"width": [64, 1024]}))
    with mlflow.start_run(run_name="outer") as outer, SmallCard("4MiB"):
        study.optimize(trials.optuna(logged), n_trials=2)
        assert mlflow.active_run().info.run_id == outer.info.run_id
    client = mlflow.MlflowClient()
    runs = {run.info.run_name: run for run in client.search_runs(["0"])}
    ended = {trial.number: trial.state.name for trial in study.trials}
    for number, state in ended.items():
        run = runs[f"trial {number}"]
        assert run.info.status == ("FAILED" if state == "PRUNED" else "FINISHED")
        assert run.data.tags.get("preflight.oom") == ("true" if state == "PRUNED" else None)
    assert runs["outer"].info.status == "FINISHED"


def test_runs_of_mlflow_beside_a_loop_that_asks_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optuna, mlflow = pytest.importorskip("optuna"), pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    study = optuna.create_study()
    with mlflow.start_run(run_name="outer") as outer, SmallCard("4MiB"):
        for names in (("trial", "fold"), ("of a context",)):
            study.enqueue_trial({"width": 1024})
            asked = study.ask()
            with trials.trial(asked) as outcome:
                if len(names) == 1:
                    with mlflow.start_run(nested=True, run_name=names[0]):
                        objective(asked)
                for name in names:
                    mlflow.start_run(nested=True, run_name=name)
                outcome.value = objective(asked)
            study.tell(asked, *outcome.told)
            assert mlflow.active_run().info.run_id == outer.info.run_id
    found = mlflow.MlflowClient().search_runs(["0"])
    ended = {run.info.run_name: (run.info.status, run.data.tags.get("preflight.oom")) for run in found}
    assert ended == {
        "outer": ("FINISHED", None), "trial": ("FAILED", "true"), "fold": ("FAILED", "true"),
        "of a context": ("FAILED", None),
    }  # fmt: skip
    assert [trial.state.name for trial in study.trials] == ["PRUNED", "PRUNED"]


AGENT = """
import torch, wandb
from preflight import guard

kept = {}  # as the agent keeps the exception of each run
def train():
    with wandb.init(project="memory", mode="offline", settings=wandb.Settings(silent=True)) as run:
        size = sizes.pop(0)
        made = torch.zeros(size, 1024)
        made * 2
        run.log({"size": size})

sizes = [2048, 64, 2048, 64]
with guard.SmallCard("10MiB") as card:
    for number in range(4):
        try:
            guard.wandb(train)()
        except Exception as error:
            kept[number] = error
        print(number, card.live, wandb.run is None)
print(sorted(kept), {type(one).__name__ for one in kept.values()})
"""


def lines_of(program: str, folder: Path) -> list[str]:
    """What a program prints that uses W&B offline."""
    environment = {**os.environ, "WANDB_DIR": str(folder), "WANDB_MODE": "offline"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_functions_of_a_wandb_agent(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    assert lines_of(AGENT, tmp_path) == [*(f"{number} 0 True" for number in range(4)), "[0, 2] {'RuntimeError'}"]


STUDY = """
import optuna, torch, wandb
from preflight import guard

optuna.logging.set_verbosity(optuna.logging.ERROR)
settings = wandb.Settings(silent=True)

def objective(trial):
    if own:
        wandb.init(project="memory", id=f"trial{trial.number}", settings=settings)
    width = trial.suggest_categorical("width", [64, 1024])
    loss = torch.nn.Linear(width, width)(torch.randn(1024, width)).pow(2).mean()
    loss.backward()
    wandb.log({"loss": float(loss)})
    if own:
        wandb.finish()
    return float(loss)

with guard.SmallCard("4MiB"):
    for own in (True, False):
        outer = None if own else wandb.init(project="memory", id="outer", settings=settings)
        study = optuna.create_study(sampler=optuna.samplers.GridSampler({"width": [64, 1024]}))
        study.optimize(guard.optuna(objective), n_trials=2)
        print(sorted(trial.state.name for trial in study.trials), wandb.run is outer)
wandb.finish()
"""


def test_runs_of_wandb_beside_trials(tmp_path: Path) -> None:
    """The trial's own run ends with it, as failed; one that was there before is the program's."""
    pytest.importorskip("wandb")
    pytest.importorskip("optuna")
    assert lines_of(STUDY, tmp_path) == ["['COMPLETE', 'PRUNED'] True"] * 2
    statuses = sorted((path.stem, status) for path, status in offline_runs(tmp_path, 3).items())
    assert statuses in (
        [("run-outer", 0), ("run-trial0", 0), ("run-trial1", 1)],
        [("run-outer", 0), ("run-trial0", 1), ("run-trial1", 0)],
    )


SWEEP = """
program: train.py
method: grid
parameters:
  batch_size: {values: [4, 2048, 8]}
command: [PYTHON, -m, preflight, run, -q, --, "${env}", PYTHON, "${program}", "${args}"]
"""
SWEPT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
model = torch.nn.Linear(1024, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        return torch.ones(1024)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=args.batch_size):
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    break
print("trained with", args.batch_size, flush=True)
"""


def test_the_command_of_a_sweep_that_a_real_agent_runs(tmp_path: Path) -> None:
    """A run that dies is told to the agent as it is, and the sweep goes on."""
    pytest.importorskip("wandb")
    (tmp_path / "train.py").write_text(SWEPT)
    runs = [{"batch_size": 4}, {"batch_size": 2048}, {"batch_size": 8}]
    with serving(SWEEP.replace("PYTHON", sys.executable), runs) as address:
        environment = {
            **os.environ, "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40, "WANDB_DIR": str(tmp_path),
            "HOME": str(tmp_path), "PREFLIGHT_STORE": f"{tmp_path}/runs/", "PREFLIGHT_SMALL_CARD": "16MiB",
            "WANDB_AGENT_REPORT_INTERVAL": "0",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "agent", "ada/memory/s"], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=HANGS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "trained" in line] == ["trained with 4", "trained with 8"], (
        done.stderr
    )
    assert re.search(r"preflight run: died in \w+ \(status 1\): .*GPU", done.stderr), done.stderr
    kept = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*.jsonl")]
    ended = {one["job"]["train"]["batch_size"]: (one["outcome"], one["exit"]) for one in kept}
    assert ended == {4: ("completed", 0), 2048: ("oom", 1), 8: ("completed", 0)}
