"""A command under `preflight run`: its status, signals, streams and variables are its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import HANGS

from preflight.vocabulary.errors import UsageError
from preflight.watch.process import RECORDS, Start, environment, watch
from preflight.watch.text import summary

PREFLIGHT = [sys.executable, "-m", "preflight", "run", "--mode", "record", "-q", "--"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("word", ["there-is-no-such-command", "./missing", "/"])
def test_a_command_that_is_not_there(word: str) -> None:
    with pytest.raises(UsageError):
        watch(Start((word,)))


@pytest.mark.parametrize("status", [0, 1, 2, 77, 255])
def test_the_exit_status(status: int) -> None:
    assert watch(Start(("sh", "-c", f"exit {status}"))).status == status


def test_a_signal_that_ends_it() -> None:
    run = watch(Start(("sh", "-c", "kill -9 $$")))
    assert (run.status, run.asked_to_end) == (-9, 0)


def test_the_records_folder_is_gone_afterwards() -> None:
    path = Path("folder")
    watch(Start(("sh", "-c", f"echo ${RECORDS} > {path}; touch ${RECORDS}/rank0-1.jsonl")))
    assert not Path(path.read_text().strip()).exists()


def test_without_a_place_for_records_it_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(prefix: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("preflight.watch.process.tempfile.mkdtemp", full)
    lines: list[str] = []
    run = watch(Start(("sh", "-c", "echo hello; exit 3"), say=lines.append))
    assert (run.status, run.ranks) == (3, ())
    assert capfd.readouterr().out == "hello\n"
    assert lines == ["the command is not recorded: No space left on device"]


def test_other_processes_on_the_gpus_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "nvidia-smi"
    asked.write_text("#!/bin/sh\necho 71, 2048\necho 72, [N/A]\n")
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    run = watch(Start(("true",)))
    assert run.others == ((71, 2**31),)
    assert any("other processes held memory of the GPUs at the start: 71 (2 GiB)" in line for line in summary(run))


def test_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own/place")
    found = environment(tmp_path, {"MORE": "1"})
    assert found["PYTHONPATH"].endswith(f"{os.pathsep}/own/place")
    assert (found[RECORDS], found["MORE"]) == (str(tmp_path), "1")
    assert environment(tmp_path, {"PREFLIGHT_GUARD": "off"})["PYTHONPATH"] == "/own/place"


def test_a_signal_in_reply_ends_it() -> None:
    run = watch(Start(("sleep", "600"), {}, lambda *_: signal.SIGTERM))
    assert (run.status, run.asked_to_end, run.end) == (-15, signal.SIGTERM, "stopped")


def test_streams_and_status_pass_through() -> None:
    script = "cat; echo told >&2; exit 5"
    done = subprocess.run(
        [*PREFLIGHT, "sh", "-c", script], input=b"a\0b", capture_output=True, timeout=HANGS, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"a\0b", b"told\n", 5)


def test_a_signal_passes_through_and_ends_this_process_alike() -> None:
    script = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen([*PREFLIGHT, "sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    assert (process.communicate(timeout=HANGS)[0], process.returncode) == (b"got\n", 7)
    killed = subprocess.run([*PREFLIGHT, "sh", "-c", "kill -9 $$"], capture_output=True, timeout=HANGS, check=False)
    assert killed.returncode == -9
