"""Two copies of the guard in one process, threads, and processes that are forked after CUDA was used, or spawned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

pytest.importorskip("torch")

PROGRAM = """
import multiprocessing, os, sys, threading
import torch
from preflight import guard

PARENT = os.getpid()

def of_parent(value):
    def asked(*_):
        if os.getpid() != PARENT and multiprocessing.get_start_method(allow_none=True) != "spawn":
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return value
    return asked

def train(done):
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        guard.step(lambda x: model(x).pow(2).mean(), torch.randn(16, 64), model, optimizer)
        optimizer.step()
    done.append(True)

def child():
    train([])

if __name__ == "__main__":
    print("one", guard.record() is sys._preflight_recorder, "preflight_guard" in sys.modules)
    done = []
    threads = [threading.Thread(target=train, args=(done,)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    print("threads", len(done))
    torch.cuda.is_initialized = lambda: os.getpid() == PARENT  # what torch says after a fork
    torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all = of_parent([]), of_parent(None)
    torch.cuda.empty_cache = of_parent(None)
    train(done)
    for how in ("fork", "spawn"):
        process = multiprocessing.get_context(how).Process(target=child)
        process.start()
        process.join()
        print(how, process.exitcode)
"""


@pytest.mark.slow
def test_two_guards_threads_and_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "preflight", "run", "--", sys.executable, "train.py"]
    environment = {**os.environ, "PREFLIGHT_STORE": f"{tmp_path}/runs/"}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["one True True", "threads 4", "fork 0", "spawn 0"]
    assert "Traceback" not in done.stderr
    assert "not recorded" not in done.stderr
