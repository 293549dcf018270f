"""`preflight run` and `preflight runs` as a user meets them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from folders import Write
from processes import HANGS

from preflight.commands import run
from preflight.vocabulary.watched import WatchedHost

PROGRAM = """
import argparse, torch
from transformers import BertConfig, BertForSequenceClassification
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--grad_accum", type=int, default=1)
args = parser.parse_args()
model = BertForSequenceClassification(BertConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=99))
data = torch.utils.data.TensorDataset(torch.zeros(128, 64, dtype=torch.long), torch.zeros(128, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
optimizer = torch.optim.AdamW(model.parameters())
for step, (x, y) in enumerate(loader):
    loss = model(input_ids=x, labels=y).loss / args.grad_accum
    loss.backward()
    if (step + 1) % args.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
print("done", step + 1)
"""


def preflight(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PREFLIGHT_STORE": str(folder / "data" / "runs.sqlite"),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "preflight", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=HANGS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run",), "name the command after --"),
        (("run", "--", "there-is-no-such-command"), "there is no such command"),
        (("runs", "ffff"), "no run was recorded yet"),
        (("runs", "--export", "all.csv"), "is none of FILE.jsonl, FILE.parquet"),
        (("runs", "--import", "missing.jsonl"), "cannot be read"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = preflight(tmp_path, *words)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("preflight run: ")]
    assert len(said) == 1
    assert why in said[0]


def test_no_runs_yet(tmp_path: Path) -> None:
    assert "no run was recorded yet" in preflight(tmp_path, "runs").stdout
    assert json.loads(preflight(tmp_path, "runs", "--output-format", "json").stdout) == []
    assert not (tmp_path / "data").exists()


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")


STORES = {
    "no folder": (lambda path: path.parent.write_text(""), "cannot be used"),
    "damaged": (lambda path: path.write_bytes(b"x" * 5000), "it is no file of runs or it is damaged"),
    "newer": (newer, "was made by a newer preflight (version 99"),
}


@pytest.mark.parametrize("store", STORES)
def test_a_run_that_may_not_be_kept_runs(store: str, tmp_path: Path) -> None:
    make, why = STORES[store]
    if store != "no folder":
        (tmp_path / "data").mkdir(0o700)
    make(tmp_path / "data" / "runs.sqlite")
    done = preflight(tmp_path, "run", "-q", "--", "sh", "-c", "echo hello", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "hello\n", 1)
    assert "the records are not kept" in done.stderr
    assert why in done.stderr
    [kept] = tmp_path.glob("preflight-*.jsonl")
    assert f"preflight runs --import {kept} brings them in" in done.stderr
    assert json.loads(kept.read_text())["outcome"] == "completed"


def test_a_disk_that_is_full_changes_nothing_in_the_run(tmp_path: Path) -> None:
    """No file may have a byte."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    own = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-m", "preflight", "run", "-q", "--", "sh", "-c", "echo hello; exit 7"]
    environment = {**os.environ, "PREFLIGHT_STORE": str(tmp_path / "data" / "runs.sqlite"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", own, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=HANGS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "hello\n")
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [
        " the command is not recorded", " the records are not kept",
    ]  # fmt: skip
    assert not list(tmp_path.glob("preflight-*"))


@pytest.mark.parametrize("clock", [1e9, 4e9], ids=["long ago", "in the future"])
def test_records_of_a_run_that_was_killed_with_its_preflight_run(clock: float, tmp_path: Path) -> None:
    """As the end of a job kills all of its processes. The clock may have been wrong."""
    killed = preflight(tmp_path, "run", "-q", "--", "sh", "-c", "kill -9 $PPID", TMPDIR=str(tmp_path))
    assert killed.returncode == -9
    [folder] = tmp_path.glob("preflight-run-*")
    about = {"rank": 0, "world": 1, "pid": 2**22 + 1, "torch": "2.9.0", "gpu": "A100", "gpu_memory": 2**35}
    peaks = {"kind": "peaks", "phase": "forward", "peaks": {"forward": {"reserved": 2**30}}, "steps": 7}
    lines = [json.dumps(one) for one in ({"kind": "start", **about}, peaks)]
    (folder / f"rank0-{2**22 + 1}.jsonl").write_text("\n".join(lines))
    assert "is kept" not in preflight(tmp_path, "run", "--", "true", TMPDIR=str(tmp_path)).stderr  # it may still write
    for path in folder.iterdir():
        os.utime(path, (clock, clock))
    assert (
        "a run that was killed with its preflight run is kept"
        in preflight(tmp_path, "run", "--", "true", TMPDIR=str(tmp_path)).stderr
    )
    assert not folder.exists()
    runs = json.loads(preflight(tmp_path, "runs", "--output-format", "json").stdout)
    assert sorted((run["outcome"], run["steps"]) for run in runs) == [
        ("completed", 0),
        ("completed", 0),
        ("unknown", 7),
    ]


@pytest.mark.slow
def test_a_job_that_dies_starts_again_with_less_and_is_known_afterwards(project: Write) -> None:
    folder = project({"train.py": PROGRAM})
    command = ("--", sys.executable, "train.py", "--batch_size", "64")
    card = {"PREFLIGHT_SMALL_CARD": "22MiB"}
    died = preflight(folder, "run", *command, **card)
    assert died.returncode == 1
    assert "died in forward" in died.stderr
    lived = preflight(folder, "run", "--retry", "4", *command, **card)
    assert lived.returncode == 0, lived.stderr
    assert "the effective batch stays 64" in lived.stderr
    assert lived.stdout.startswith("done ")
    assert (folder / "train.py").read_text() == PROGRAM
    runs = json.loads(preflight(folder, "runs", "--output-format", "json").stdout)
    assert runs[0]["outcome"] == "completed"
    assert {run["outcome"] for run in runs[1:]} == {"oom"}
    assert runs[0]["job"]["train"]["batch_size"] * runs[0]["job"]["train"]["grad_accum"] == 64
    shown = preflight(folder, "runs", runs[0]["id"][:6])
    assert "optimizer" in shown.stdout


TRAINER = """
import os, torch
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments
[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = BertForSequenceClassification(BertConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=99))
class Texts(torch.utils.data.Dataset):
    seen = 0
    def __len__(self):
        return 256
    def __getitem__(self, index):
        self.seen += 1
        if self.seen == 113:  # the newest checkpoint is torn
            os.truncate(os.path.join(arguments.output_dir, "checkpoint-6", "optimizer.pt"), 999)
        return {"input_ids": torch.zeros(16 if self.seen <= 96 else 64, dtype=torch.long), "labels": 0}
trainer = Trainer(model=model, args=arguments, train_dataset=Texts())
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
print("done", trainer.state.global_step)
"""


@pytest.mark.slow
def test_it_goes_on_from_the_newest_whole_checkpoint(project: Write) -> None:
    pytest.importorskip("transformers", "5.2")
    folder = project({"train.py": TRAINER})
    words = "--output_dir out --per_device_train_batch_size 16 --save_steps 2 --max_steps 8 --report_to none --use_cpu"
    done = preflight(
        folder, "run", "--retry", "1", "--", sys.executable, "train.py", *words.split(), PREFLIGHT_SMALL_CARD="9MiB"
    )
    assert done.returncode == 0, done.stderr
    assert "starting again from checkpoint-4, batch 16 -> 8, accumulation 1 -> 2" in done.stderr
    assert "peaks over 4 steps" in done.stderr
    assert done.stdout.splitlines()[-1] == "done 8"


STUDY = """
import optuna, torch
from preflight import guard
from transformers import GPT2Config, GPT2LMHeadModel
WIDTHS = [32, 256]
def job(trial):
    width = trial.suggest_categorical("width", WIDTHS)
    return {"model.architecture": "GPT2LMHeadModel", "train.batch_size": 4, "train.seq_len": 32,
            "train.optimizer": "adamw", "model.config":
            {"n_embd": width, "n_layer": 1, "n_head": 2, "vocab_size": 500, "n_positions": 32}}
def objective(trial):
    width = trial.suggest_categorical("width", WIDTHS)
    model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=1, n_head=2, vocab_size=500, n_positions=32))
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in torch.randint(0, 500, (5, 4, 32)):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
study = optuna.create_study(sampler=optuna.samplers.GridSampler({"width": WIDTHS}, seed=0))
study.optimize(guard.optuna(objective, job=job), n_trials=2)
print("done", len(study.trials))
"""


@pytest.mark.slow
def test_a_search_keeps_a_record_of_each_trial(project: Write) -> None:
    pytest.importorskip("optuna")
    folder = project({"study.py": STUDY})
    done = preflight(folder, "run", "--", sys.executable, "study.py", PREFLIGHT_SMALL_CARD="6MiB")
    assert (done.returncode, done.stdout) == (0, "done 2\n"), done.stderr
    runs = json.loads(preflight(folder, "runs", "--output-format", "json").stdout)
    widths = {(run["job"] or {}).get("model", {}).get("config", {}).get("n_embd"): run["outcome"] for run in runs}
    assert widths == {32: "completed", 256: "oom", None: "completed"}


def test_the_time_for_estimates_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command runs for hours between reading it and judging what it left."""
    now = [0.0]
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    clock = run._Clock()
    progress = clock.progress()
    now[0] = 3600.0
    assert progress.over()
    clock.progress()
    assert not progress.over()


def test_an_error_of_a_forecast_ends_the_forecasts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    looks = run._Forecaster(None, "enforce", said.append, run._Clock())
    monkeypatch.setattr(looks, "_signal", lambda *_: 1 / 0)
    assert [looks.look(tmp_path, WatchedHost()) for _ in range(2)] == [None, None]
    assert said == ["what is to come is not judged any more: ZeroDivisionError: division by zero"]


def test_memory_that_runs_out_while_the_model_is_made(tmp_path: Path) -> None:
    """No phase has begun by then, and there is nothing else to record."""
    pytest.importorskip("torch")
    (tmp_path / "load.py").write_text("import torch\ntorch.nn.Linear(4096, 4096)\n")
    done = preflight(tmp_path, "run", "-q", "--", sys.executable, "load.py", PREFLIGHT_SMALL_CARD="16MiB")
    assert done.returncode == 1
    assert "preflight run: died in load (status 1): GPU 0 ran out of memory" in done.stderr
