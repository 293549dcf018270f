"""The five incidents in small: each dies as it did, and lives with the guard, the fix, or another start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import HANGS

from preflight.watch.host import ControlGroup, control_group

PROGRAMS = Path(__file__).parents[2] / "examples" / "run_time"
RUN = (sys.executable, "-m", "preflight", "run")
MIB = 2**20

pytestmark = pytest.mark.slow


def played(*words: str, card: str = "", run: tuple[str, ...] = (), group: Path | None = None) -> tuple[int, str]:
    """Status and output of a program under `preflight run`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PREFLIGHT_SMALL_CARD": card}
    command: list[str] = [*RUN, *run, "--", sys.executable, *words]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
    done = subprocess.run(
        command, cwd=PROGRAMS, env=environment, capture_output=True, text=True, timeout=HANGS, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("program", "card", "dies", "lives"),
    [
        ("vocabulary.py", "24MiB", "died in validation", "--guard"),
        ("clip.py", "24MiB", "died in backward", "--fixed"),
        ("study.py", "24MiB", "GPU 0 ran out of memory", "--guard"),
    ],
)
def test_on_a_card_in_small(program: str, card: str, dies: str, lives: str) -> None:
    if program == "study.py":
        pytest.importorskip("optuna")
    status, text = played(program, card=card)
    assert status == 1
    assert dies in text
    assert "done" not in text.splitlines()
    status, text = played(program, lives, card=card)
    assert status == 0, text
    assert any(line.startswith("done") for line in text.splitlines())


def test_the_guard_does_not_halve_a_contrastive_batch() -> None:
    status, text = played("clip.py", "--guard", card="1.2MiB")
    assert status == 1
    assert "the mean of its halves" in text


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 900 MiB, where this machine lets one be made."""
    own = control_group()
    if own is None:
        pytest.skip("no control group for memory")
    made = own.folder / f"preflight-test-{os.getpid()}"
    try:
        made.mkdir()
        limit = "memory.limit_in_bytes" if own.version == 1 else "memory.max"
        (made / limit).write_text(str(900 * MIB))
        assert ControlGroup(made, own.version).limit == 900 * MIB
    except (OSError, AssertionError):
        if made.is_dir():
            made.rmdir()
        pytest.skip("no control group can be made")
    yield made
    made.rmdir()


def test_workers_that_the_kernel_kills(group: Path) -> None:
    status, text = played("workers.py", "--batch_size", "64", "--workers", "4", group=group)
    assert status != 0
    assert "reached its memory limit of 900 MiB" in text
    words = ("workers.py", "--batch_size", "64", "--workers", "4")
    status, text = played(*words, run=("--retry", "3"), group=group)
    assert status == 0, text
    assert "starting again from the beginning, since no checkpoint was written, workers 4 -> 2: " in text


def test_a_validation_that_the_kernel_kills(group: Path) -> None:
    status, text = played("validation.py", "--val_workers", "6", group=group)
    assert status != 0
    assert "reached its memory limit" in text
    assert "validation" in text.splitlines()
    status, text = played("validation.py", "--val_workers", "1", group=group)
    assert status == 0, text
