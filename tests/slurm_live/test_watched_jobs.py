"""`preflight run` inside real SLURM jobs: several tasks a node, signals, exit status, a record for every rank."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import HANGS
from slurm_live.cluster import Cluster

pytestmark = pytest.mark.integration
pytest.importorskip("torch")

RUN = f"{sys.executable} -m preflight run --mode record -q"
TRAIN = """\
import os, signal, sys, time
import torch

def told(number, frame):
    print(f"rank {os.environ['SLURM_PROCID']} got {signal.Signals(number).name}", flush=True)
    if number == signal.SIGTERM or "--ends" in sys.argv:
        sys.exit(11)

signal.signal(signal.SIGUSR1, told)
signal.signal(signal.SIGTERM, told)
model = torch.nn.Linear(64, 64)
if torch.distributed.is_initialized():  # not here: on a cluster with several GPUs
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    model(torch.ones(8, 64)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {os.environ['SLURM_PROCID']} trained", flush=True)
if "--waits" in sys.argv:
    for _ in range(600):
        time.sleep(0.1)
sys.exit(int(sys.argv[1]) if os.environ["SLURM_PROCID"] == "1" else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def variables(folder: Path) -> dict[str, str]:
    return {"PREFLIGHT_STORE": f"{folder}/runs/", "PREFLIGHT_SMALL_CARD": "1GiB", "OMP_NUM_THREADS": "1"}


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((folder / "runs").glob("*.jsonl")) for line in path.open()]


def train(*words: str) -> list[str]:
    return [*RUN.split(), "--", sys.executable, "train.py", *words]


def script(folder: Path, cluster: Cluster, *lines: str) -> str:
    """A job that was submitted: its id."""
    (folder / "job.sh").write_text(
        "\n".join(("#!/bin/bash", "#SBATCH --output=job.txt --ntasks=2 --mem=4G", *lines, ""))
    )
    found = cluster.run(["sbatch", "--parsable", "job.sh"], folder, **variables(folder))
    assert found.code == 0, found.err
    return found.out.decode().strip()


def until(folder: Path, *texts: str) -> str:
    """The output of the job, once it has these texts."""
    end = time.monotonic() + HANGS
    text = ""
    while time.monotonic() < end and not all(one in text for one in texts):
        path = folder / "job.txt"
        text = str(path.read_text()) if path.is_file() else ""
        time.sleep(0.1)
    assert all(one in text for one in texts), text
    return text


@pytest.mark.parametrize("status", [0, 7])
def test_each_task_of_a_step_has_its_record_and_its_status(cluster: Cluster, folder: Path, status: int) -> None:
    words = ["srun", "--ntasks=2", "--mem=4G", *train(str(status))]
    done = cluster.run(words, folder, **variables(folder))
    assert done.code == status, done.err
    assert sorted(done.out.decode().splitlines()) == ["rank 0 trained", "rank 1 trained"]
    kept = sorted(records(folder), key=lambda one: int(one["rank_max"]))
    assert [(one["rank_max"], one["world"], one["exit"], one["steps"]) for one in kept] == [
        (0, 2, 0, 5), (1, 2, status, 5),
    ]  # fmt: skip
    for one in kept:
        parallel = one["job"]["parallel"]
        assert (parallel["strategy"], parallel["ranks_per_node"]) == ("ddp", 2)
        assert {"forward", "backward", "optimizer"} <= {peak["phase"] for peak in one["peaks"]}


def test_one_run_around_a_step_has_all_its_ranks(cluster: Cluster, folder: Path) -> None:
    words = [*RUN.split(), "--", "srun", "--ntasks=2", "--mem=4G", sys.executable, "train.py", "7"]
    done = cluster.run(words, folder, **variables(folder))
    assert done.code == 7, done.err
    [kept] = records(folder)
    assert {(peak["rank"], peak["phase"]) for peak in kept["peaks"]} >= {(0, "backward"), (1, "backward")}
    assert (kept["exit"], kept["world"]) == (7, 2)


def test_scancel_reaches_the_program(cluster: Cluster, folder: Path) -> None:
    number = script(folder, cluster, f"exec srun --ntasks=2 {' '.join(train('0', '--waits'))}")
    until(folder, "rank 0 trained", "rank 1 trained")
    cluster.run(["scancel", number], folder)
    until(folder, "rank 0 got SIGTERM", "rank 1 got SIGTERM")


def test_a_program_that_ends_at_a_warning_has_its_own_status(cluster: Cluster, folder: Path) -> None:
    """What `#SBATCH --signal=USR1@60` sends a minute before the end."""
    number = script(folder, cluster, f"srun --ntasks=2 {' '.join(train('0', '--waits', '--ends'))}", 'echo "status $?"')
    until(folder, "rank 0 trained", "rank 1 trained")
    cluster.run(["scancel", "--signal=USR1", number], folder)
    text = until(folder, "rank 0 got SIGUSR1", "rank 1 got SIGUSR1", "status 11")
    assert (text.count("rank 0 got"), text.count("rank 1 got")) == (1, 1)
    assert sorted(one["exit"] for one in records(folder)) == [11, 11]
