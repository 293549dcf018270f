"""The recorder in processes of their own: phases, peaks, what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import HANGS

import preflight.guard as package
from preflight.watch.records import ranks_of

START = Path(package.__file__).parent / "start"
PROGRAM = """
import os, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(64, 512)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
for batch in torch.utils.data.DataLoader(torch.randn(8, 512), batch_size=4, num_workers=1):
    model(batch)
model.eval()
large = torch.randn(4096, 512)
with torch.no_grad():
    model(large)
torch.save(model.state_dict(), "model.pt")
try:
    torch.save(lambda: None, f=os.path.join(os.curdir, "torn.pt"))
except Exception:
    model(large[:1].detach())
if "kill" in sys.argv:
    with torch.no_grad():
        model(large)
    os.kill(os.getpid(), 9)
"""
WEIGHTS = 2 * 4 * (512 * 512 + 512)
Lines = list[dict[str, Any]]


def recorded(
    folder: Path, program: str, *arguments: str, **variables: str
) -> tuple[subprocess.CompletedProcess[str], Lines]:
    """A program with the recorder, and the lines that it left."""
    records = folder / "records"
    records.mkdir(exist_ok=True)
    (folder / "program.py").write_text(program)
    environment = {
        **os.environ, "PYTHONPATH": str(START), "PREFLIGHT_RUN_RECORDS": str(records), "OMP_NUM_THREADS": "1",
        "PREFLIGHT_SMALL_CARD": "1GiB", **variables,
    }  # fmt: skip
    switches = [one for one in arguments if one.startswith("-")]
    words = [one for one in arguments if not one.startswith("-")]
    done = subprocess.run(
        [sys.executable, *switches, "program.py", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=HANGS, check=False,
    )  # fmt: skip
    lines = [json.loads(line) for path in sorted(records.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return done, lines


def test_a_program_without_torch_leaves_nothing(tmp_path: Path) -> None:
    done, lines = recorded(tmp_path, "print('hello')")
    assert (done.stdout, done.stderr, lines) == ("hello\n", "", [])


def test_a_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 7\n")
    done, _ = recorded(tmp_path, "print(mine)", PYTHONPATH=f"{START}{os.pathsep}{own}")
    assert done.stdout == "7\n"


def test_a_library_may_ask_first_whether_torch_is_there(tmp_path: Path) -> None:
    """transformers does, before anything imports torch."""
    asked = "import importlib.util\nassert all(importlib.util.find_spec('torch') for _ in range(2))\n"
    done, lines = recorded(tmp_path, f"{asked}import sys, torch\nsys._preflight_recorder.enter('forward')\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0]["kind"] == "start"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Lines]:
    """A process that was killed while it evaluated."""
    folder = tmp_path_factory.mktemp("killed")
    done, lines = recorded(folder, PROGRAM, "kill")
    return folder / "records", done.returncode, lines


@pytest.mark.slow
def test_peaks_of_each_phase(killed: tuple[Path, int, Lines]) -> None:
    lines = killed[2]
    assert lines[0]["kind"] == "start"
    last = [line for line in lines if line["kind"] == "peaks"][-1]
    peaks = {phase: tiers["requested"] for phase, tiers in last["peaks"].items() if tiers}
    assert {"load", "forward", "backward", "optimizer", "step", "validation", "save"} == set(peaks)
    assert WEIGHTS <= peaks["load"] < peaks["backward"]
    assert peaks["optimizer"] >= 4 * WEIGHTS
    assert peaks["validation"] >= 3 * WEIGHTS + 2 * 4 * 4096 * 512
    assert last["steps"] == 5


@pytest.mark.slow
def test_a_killed_process_leaves_where_it_was(killed: tuple[Path, int, Lines]) -> None:
    folder, status, lines = killed
    assert status == -9
    assert lines[-1]["kind"] == "peaks"
    [rank] = ranks_of(folder)
    assert (rank.phase, rank.steps, rank.ended) == ("validation", 5, False)


@pytest.mark.slow
def test_files_that_were_saved_are_known_and_those_that_were_not_ended(killed: tuple[Path, int, Lines]) -> None:
    folder = killed[0]
    [rank] = ranks_of(folder)
    assert [(Path(one.path), one.ended) for one in rank.saves] == [
        (folder.parent / "model.pt", True), (folder.parent / "torn.pt", False),
    ]  # fmt: skip


@pytest.mark.slow
def test_workers_of_loaders_write_nothing(killed: tuple[Path, int, Lines]) -> None:
    assert len({line["pid"] for line in killed[2] if line["kind"] == "start"}) == 1


def test_the_error_that_ends_it_is_told_with_its_phase(tmp_path: Path) -> None:
    done, lines = recorded(tmp_path, PROGRAM, PREFLIGHT_SMALL_CARD="16MiB")
    assert done.returncode == 1
    error = next(line for line in lines if line["kind"] == "error")
    assert (error["error"], error["memory"], error["phase"]) == ("OutOfMemoryError", "allocator", "validation")


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "variables"), [("-E", {}), ("-s", {"PREFLIGHT_GUARD": "off"})])
def test_a_process_may_be_left_alone(tmp_path: Path, switch: str, variables: dict[str, str]) -> None:
    done, lines = recorded(tmp_path, PROGRAM, switch, **variables)
    assert (done.returncode, done.stderr, lines) == (0, "", [])


MODULES = 200
CALLS = 100
"""Calls of the guard's functions, and of built-in ones in them, that a step may make: it makes 75, whatever the model.
They take half a millisecond of CPU time (benchmarks/overhead, docs/results)."""


def test_a_step_makes_few_calls(tmp_path: Path) -> None:
    """Calls are counted and not timed: a busy machine does not count."""
    program = f"""
import sys, torch
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range({MODULES})))
optimizer = torch.optim.SGD(model.parameters())
made = 0
def called(frame, event, what):
    global made
    made += event in ("call", "c_call") and "preflight" in frame.f_code.co_filename
def go():
    model(torch.randn(2, 16)).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
for _ in range(10):
    go()
sys.setprofile(called)
for _ in range(10):
    go()
sys.setprofile(None)
print(made / 10)
"""
    done, _ = recorded(tmp_path, program, PREFLIGHT_SMALL_CARD="")
    assert 0 < float(done.stdout) <= CALLS


@pytest.mark.slow
def test_a_model_of_a_later_trial_is_found(tmp_path: Path) -> None:
    """Its optimizer tells that it is there."""
    program = """
import torch
for width in (64, 512):
    model = torch.nn.Linear(width, width)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        model(torch.randn(512, width)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    done, lines = recorded(tmp_path, program)
    assert done.returncode == 0, done.stderr
    peaks = [line for line in lines if line["kind"] == "peaks"][-1]["peaks"]
    assert peaks["forward"]["requested"] >= 2 * 4 * 512 * 512
