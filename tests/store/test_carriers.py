"""Places that carry recorded runs: each gives back what was put, twice is once, and mistakes are one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from guard.wandb_files import offline_runs
from msgspec.structs import replace
from processes import HANGS

from preflight.api import job_of
from preflight.store import database, exchange
from preflight.store.exchange import carrier_of
from preflight.store.records import KeptRun, kept_run
from preflight.store.runs import runs
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.watched import WatchedHost, WatchedMachine, WatchedRank, WatchedRun

RANK = WatchedRank(0, 1, 7, WatchedMachine("A100", 80 << 30), {"backward": {"allocated": 6 << 30}}, steps=3)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.PLACE, str(tmp_path / "data" / "runs.sqlite"))


def one() -> KeptRun:
    job = job_of({"model.name": "gpt2", "train.batch_size": 8, "train.seq_len": 128})
    return replace(kept_run(WatchedRun(0, 2.0, (RANK,), WatchedHost(100, 1, 50)), job, None), source="here")


def carried(address: str) -> None:
    """Two runs are put, one of them twice, and come back as they were."""
    sent = [one(), one()]
    carrier_of(address).put(sent[:1])
    carrier_of(address).put(sent)
    assert exchange.read_into(carrier_of(address)) == (2, 0, [])
    assert exchange.read_into(carrier_of(address)) == (0, 2, [])
    assert sorted(runs(), key=lambda run: run.id) == sorted(sent, key=lambda run: run.id)


def test_addresses_of_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    carried(f"file://{tmp_path}/team/")


def test_one_file_of_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    run = one()
    carrier_of(f"file://{tmp_path}/all.jsonl").put([run])
    assert exchange.read_into(carrier_of(str(tmp_path / "all.jsonl"))) == (1, 0, [])
    assert runs() == [run]


def test_a_folder(tmp_path: Path) -> None:
    carried(f"{tmp_path}/team/")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("all.csv", "all.csv is none of FILE.jsonl"),
        ("s3://bucket/file.parquet", "ends with .jsonl"),
        ("nowhere://bucket/", "cannot be read"),
        ("mlflow:", "names no run"),
        ("wandb:", "names no run"),
        ("wandb:alone", "write wandb:"),
        ("optuna:sqlite:///x.db", "write optuna:STORAGE#STUDY"),
        ("missing.wandb", "cannot be read"),
    ],
)
def test_mistakes_are_one_line(address: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_RUN_ID", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    needed = {"mlflow": "mlflow", "wandb": "wandb", "nowhere": "fsspec", "missing.wandb": "wandb"}
    library = needed.get(address.partition(":")[0])
    if library is not None:
        pytest.importorskip(library)
    with pytest.raises(UsageError) as error:
        list(carrier_of(address).lines())
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match="needs mlflow: pip install mlflow"):
        list(carrier_of("mlflow:abc").lines())


@pytest.mark.slow
def test_an_optuna_study(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path}/hpo.db"
    optuna.create_study(study_name="my-study", storage=storage)
    carried(f"optuna:{storage}#my-study")
    with pytest.raises(UsageError, match="there is no study other"):
        list(carrier_of(f"optuna:{storage}#other").lines())


@pytest.mark.integration
def test_a_run_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")  # another test of the process may have set it
    monkeypatch.chdir(tmp_path)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.create_experiment("memory", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment).info.run_id
    carried(f"mlflow:{run}")
    assert client.get_run(run).data.metrics["preflight/peak_allocated_gib"] == 6.0
    with pytest.raises(UsageError, match="cannot be read"):
        list(carrier_of("mlflow:0123").lines())


@pytest.mark.integration
def test_the_summary_of_a_wandb_run_that_is_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    sent = [one(), one()]
    carrier_of("wandb:memory/abc123").put(sent)
    [path] = offline_runs(tmp_path)
    assert exchange.read_into(carrier_of(str(path))) == (2, 0, [])
    assert {run.id for run in runs()} == {run.id for run in sent}
    path.write_bytes(path.read_bytes()[:200])  # the process was killed as it wrote
    assert exchange.read_into(carrier_of(str(path)))[2] == []
    path.write_bytes(b"something else")
    with pytest.raises(UsageError, match="no file of a W&B run"):
        list(carrier_of(str(path)).lines())


def test_a_place_that_fails_does_not_change_the_end_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("no folder")
    words = ["run", "--record", f"{tmp_path}/blocked/", "--record", f"{tmp_path}/kept/", "--", "sh", "-c", "exit 3"]
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=HANGS, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 3
    assert "blocked/ cannot be written" in done.stderr
    assert len(list((tmp_path / "kept").iterdir())) == 1
