"""A command under `preflight run`: its status, signals, streams and variables are its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from processes import HANGS

from preflight.vocabulary.errors import UsageError
from preflight.watch.process import RECORDS, Start, environment, unhurried, watch
from preflight.watch.text import summary

PREFLIGHT = [sys.executable, "-m", "preflight", "run", "--mode", "record", "-q", "--"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # other runs left records in the machine's
    monkeypatch.setattr(tempfile, "tempdir", None)


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


def test_sigkill_of_preflight_run_ends_the_command_too() -> None:
    """Nobody can pass it on, so the kernel does."""
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    process = subprocess.Popen([*PREFLIGHT, sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    assert process.communicate(timeout=HANGS)[0] == b""  # the command held the pipe open
    until = time.monotonic() + HANGS
    while is_running(pid) and time.monotonic() < until:  # files are closed before a process is gone
        time.sleep(0.01)
    assert not is_running(pid)


def test_a_command_has_the_signals_that_this_process_had(tmp_path: Path) -> None:
    """Python ignores SIGPIPE, and this process holds back those that end it while records are kept."""
    with unhurried() as mask:
        watch(Start(("sh", "-c", "cat /proc/self/status > status"), mask=mask))
    found = dict(line.split(":", 1) for line in (tmp_path / "status").read_text().splitlines())
    assert int(found["SigBlk"], 16) == 0
    assert not int(found["SigIgn"], 16) & 1 << (signal.SIGPIPE - 1)


def test_a_second_ctrl_c_waits_for_the_records() -> None:
    kept = []

    def keep() -> None:
        with unhurried():
            os.kill(os.getpid(), signal.SIGINT)
            kept.append(True)

    with pytest.raises(KeyboardInterrupt):
        keep()
    assert kept


def test_signals_that_reach_a_thread_of_a_library() -> None:
    """It was there before this process held them back."""
    ready, script = threading.Event(), "trap 'exit 9' TERM; while :; do sleep 0.1; done"
    thread = threading.Thread(target=ready.wait)
    thread.start()
    sent = []

    def look(folder: Path, _: object) -> None:
        if not sent:
            sent.append(signal.pthread_kill(thread.ident or 0, signal.SIGTERM))

    run = watch(Start(("sh", "-c", script), {}, look))
    ready.set()
    assert (run.status, run.asked_to_end) == (9, signal.SIGTERM)


TYPED = """
import os, signal, time, torch
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
print("pid", os.getpid(), flush=True)
while not seen:
    time.sleep(0.05)
time.sleep(0.5)  # one that is passed on besides would come now
print("seen", len(seen), flush=True)
END
"""
ENDS = {
    "by the signal": ("signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)", -2),
    "with a status": ("os._exit(130)", 130),
}


@pytest.mark.parametrize("end", ENDS)
def test_ctrl_c_at_a_terminal(end: str, tmp_path: Path) -> None:
    """The terminal sends it to the whole group, so the command has it once. Records are kept, nothing runs on."""
    pytest.importorskip("torch")
    code, status = ENDS[end]
    (tmp_path / "train.py").write_text(TYPED.replace("END", code))
    environment = {**os.environ, "PREFLIGHT_STORE": str(tmp_path / "runs.sqlite"), "OMP_NUM_THREADS": "1"}
    leader, terminal = pty.openpty()
    own = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", own, *PREFLIGHT, sys.executable, "train.py"], env=environment, start_new_session=True,
        stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    said, typed = b"", False
    with contextlib.suppress(OSError):  # the last process has closed the terminal
        while text := os.read(leader, 4096):
            said += text
            if not typed and re.search(rb"pid \d+\r\n", said):
                typed = bool(os.write(leader, b"\x03"))
    os.close(leader)
    assert process.wait(HANGS) == status
    assert b"seen 1\r\n" in said, said
    found = re.search(rb"pid (\d+)", said)
    assert found is not None
    assert not is_running(int(found[1]))
    runs = [sys.executable, "-m", "preflight", "runs", "--output-format", "json"]
    [run] = json.loads(subprocess.run(runs, env=environment, capture_output=True, timeout=HANGS, check=True).stdout)
    assert (run["outcome"], run["steps"]) == ("stopped", 1)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended: one that nobody waited for is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
