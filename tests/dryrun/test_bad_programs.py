"""Programs that do what a dry run has no answer for: one clear line, nothing written, no process left."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from processes import HANGS
from programs import STEP, TRAINS, Ran, dry_run, start

torch = pytest.importorskip("torch")

BOTH = pytest.mark.parametrize("options", [(), ("--no-isolation",)], ids=["isolated", "python's layer"])
QUICK = "at once"
"""The end that is tried every time. Each takes as long as importing torch; the others are slow together."""


def ran(tmp_path: Path, program: str, *options: str, environment: dict[str, str] | None = None) -> Ran:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(program)
    (folder / "kept.txt").write_text("kept")
    found = dry_run(folder, *options, "--", "python", "train.py", environment=environment)
    assert sorted(path.name for path in folder.rglob("*")) == ["kept.txt", "train.py"]
    assert (folder / "kept.txt").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["work"], "a directory for temporary files is left"
    assert processes_of(tmp_path) == []
    return found


def processes_of(tmp_path: Path) -> list[str]:
    """Processes that still work in the folder, or were started with a name in it."""
    found = []
    for number in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not number.isdecimal() or int(number) == os.getpid():
            continue
        try:
            where = os.readlink(f"/proc/{number}/cwd")
            command = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        if where.startswith(str(tmp_path)) or os.fsencode(tmp_path) in command:
            found.append(f"{number}: {command!r}")
    return found


ENDS = {
    "at once": ("", "the program ended without an optimizer step on the GPU (nothing was put on the GPU)"),
    "with an error": ("raise ValueError('no data')", "ValueError: no data at {train}:1"),
    "with a status": ("import sys; sys.exit(3)", "the program ended with 3"),
    "with os._exit": ("import os\nos._exit(7)", "the program called os._exit(7) at {train}:2"),
    "asking for input": ("name = input('which GPU? ')", "the program asks for input, and a dry run has none"),
    "without its data": (
        "import torch\nopen('/data/of/nobody.xyz', 'rb')",
        "the folder /data/of is not there, and the program opens nobody.xyz in it, which cannot be made up: put it "
        "there, or give the program another path at {train}:2",
    ),
    "with a hook of its own": (
        "import sys\nsys.excepthook = lambda *_: None\nraise ValueError('hidden')",
        "ValueError: hidden at {train}:3",
    ),
    "with a wrong argument": ("import argparse; argparse.ArgumentParser().parse_args(['--x'])", "ended with 2"),
    "without a syntax": ("def f(:", "SyntaxError"),
    "on the CPU": (
        STEP.replace(".cuda()", "").replace(', device="cuda"', "") + "step(); step()",
        "the program trains on the CPU, and takes no memory of a GPU: if it has an option for the GPU",
    ),
    "that takes a checkpoint apart": (
        "import torch\nimages, labels = torch.load('data.pt')",
        "its sizes: state them, as in --array 'data.pt:images=300x17'",
    ),
    "that downloads an archive": (
        "import urllib.request\nurllib.request.urlopen('https://example.org/data.zip')",
        "https://example.org/data.zip was not downloaded: what the program reads of it is made up",
    ),
    "sharded": (
        STEP + "from torch.distributed.tensor.parallel import parallelize_module\nparallelize_module(net, None, {})",
        "the program shards its model, which a dry run does not follow",
    ),
    "in C": ("import ctypes\nctypes.string_at(0)", "the program ended by signal 11 and left no report"),
}


@pytest.mark.parametrize(
    "kind", [kind if kind == QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in ENDS]
)
def test_a_program_ends(tmp_path: Path, kind: str) -> None:
    program, words = ENDS[kind]
    found = ran(tmp_path, program)
    assert found.status == 2
    assert found.out == ""
    assert words.format(train=tmp_path / "work" / "train.py") in found.error


@pytest.mark.slow
def test_nothing_is_kept_of_a_program_without_an_answer(tmp_path: Path) -> None:
    cache = tmp_path.with_name(tmp_path.name + "-cache")
    found = ran(tmp_path, "raise ValueError('no data')", "--save", environment={"PREFLIGHT_CACHE_DIR": str(cache)})
    assert found.status == 2
    assert "ValueError: no data" in found.error
    assert not cache.exists()


@BOTH
@pytest.mark.slow
def test_a_program_hangs(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = ran(tmp_path, "import time\nwhile True:\n    time.sleep(1)\n", "--time-limit", "1", *options)
    assert found.status == 2
    assert "the time limit was reached before the first optimizer step" in found.error
    assert "train.py:3" in found.error


@pytest.mark.slow
@BOTH
def test_a_program_that_hears_nothing_hangs(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)\n"
    found = ran(tmp_path, program, "--time-limit", "1", *options)
    assert found.status == 2
    assert "the time limit was reached" in found.error


@pytest.mark.slow
@BOTH
def test_a_time_limit_after_training_keeps_what_was_seen(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = ran(tmp_path, STEP + "step(); step()\nimport time\ntime.sleep(600)\n", "--time-limit", "2", *options)
    assert found.status == 0, found.err
    assert "2 optimizer steps" in found.out


@pytest.mark.slow
@BOTH
def test_a_program_forks(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Its children are no part of the report, and end with it."""
    program = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\n"
    )
    found = ran(tmp_path, program + STEP + "step(); step()\n", *options)
    assert found.status == 0, found.err


WRITES = {
    "a file": "open('new.txt', 'w').write('x')",
    "another's file": "open('kept.txt', 'a').write('x')",
    "by number": "import os\ntry:\n    os.open('new.txt', os.O_CREAT | os.O_WRONLY)\nexcept PermissionError: pass",
    "a folder": "import os\nos.makedirs('a/b/c')\nopen('a/b/c/d', 'w')",
    "a checkpoint": "import torch\ntorch.save({}, 'net.pt')",
}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("kind", WRITES)
def test_a_program_writes(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    """Its writes go to scratch, where it finds them again."""
    found = ran(tmp_path, f"{WRITES[kind]}\n{STEP}step(); step()\n", *options)
    assert found.status == 0, found.err


@pytest.mark.slow
@BOTH
def test_a_program_deletes_its_folder_and_goes_elsewhere(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = (
        "import os, shutil\nhere = os.getcwd()\n"
        "try:\n    shutil.rmtree(here)\nexcept OSError:\n    pass\n"
        "os.chdir('/')\n"
    )
    found = ran(tmp_path, program + STEP + "step(); step()\n", *options)
    assert found.status == 0, found.err


@pytest.mark.slow
@BOTH
def test_a_program_opens_sockets(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=5)\n"
    found = ran(tmp_path, program, *options)
    assert found.status == 2
    assert "a dry run does not allow this: connecting to ('192.0.2.1', 80)" in found.error


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("call", ["os.system('touch started')", "subprocess.run(['touch', 'started'])"])
def test_a_program_starts_another(tmp_path: Path, call: str, options: tuple[str, ...]) -> None:
    found = ran(tmp_path, f"import os, subprocess\n{call}\n", *options)
    assert found.status == 2
    assert "starting the program touch" in found.error


AGAIN = {
    "exec": "os.execv(sys.executable, words)",
    "spawn": "os.posix_spawn(sys.executable, words, dict(os.environ))",
    "popen": "subprocess.run(words)",
}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("kind", AGAIN)
def test_a_program_starts_itself_again(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    """In an interpreter where nothing is faked it would train for real."""
    program = f"import os, subprocess, sys\nwords = [sys.executable, '-c', 'open(1, chr(119))']\n{AGAIN[kind]}\n"
    found = ran(tmp_path, program, *options)
    assert found.status == 2
    assert "starting the program python" in found.error


@pytest.mark.slow
def test_a_library_in_c_writes(tmp_path: Path) -> None:
    """Where the kernel isolates the program, what passes Python by is kept from the files too."""
    program = "import ctypes\nassert ctypes.CDLL(None).creat(b'new.txt', 0o644) >= 0\n" + STEP + "step(); step()\n"
    found = ran(tmp_path, program)
    assert found.status == 0, found.err


@pytest.mark.slow
def test_a_program_that_is_allowed_is_started(tmp_path: Path) -> None:
    program = "import subprocess\nassert subprocess.run(['true']).returncode == 0\n" + STEP + "step(); step()\n"
    found = ran(tmp_path, program, "--allow-program", "true")
    assert found.status == 0, found.err


@pytest.mark.slow
def test_secrets_are_not_in_the_environment(tmp_path: Path) -> None:
    secrets = {"HF_TOKEN": "a", "AWS_SECRET_ACCESS_KEY": "b", "WANDB_API_KEY": "c", "SSH_AUTH_SOCK": "d", "MY_OWN": "e"}
    program = f"import os\nassert [name for name in {list(secrets)} if name in os.environ] == ['MY_OWN']\n"
    found = ran(tmp_path, program + STEP + "step(); step()\n", environment=secrets)
    assert found.status == 0, found.err


@pytest.mark.slow
def test_too_much_memory(tmp_path: Path) -> None:
    found = ran(tmp_path, "import torch\nx = [torch.zeros(2**28) for _ in range(40)]\n", "--memory-limit", "3GiB")
    assert found.status == 2
    assert "memory" in found.error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "option"),
    [("x = [bytearray(2**28) for _ in range(40)]", "memory"), ("open('x', 'wb').write(bytes(2**28))", "disk")],
)
def test_a_limit_names_its_option(tmp_path: Path, line: str, option: str) -> None:
    found = ran(tmp_path, f"import torch\n{line}\n", f"--{option}-limit", "4GiB" if option == "memory" else "100MiB")
    assert found.status == 2
    assert f"than it may: --{option}-limit SIZE allows more" in found.error


@pytest.mark.slow
def test_torch_before_the_program(tmp_path: Path) -> None:
    """A sitecustomize that imports torch keeps its functions from before."""
    early = tmp_path.with_name(tmp_path.name + "-early")
    early.mkdir()
    (early / "sitecustomize.py").write_text("import torch")
    found = ran(tmp_path, TRAINS, environment={"PYTHONPATH": str(early)})
    assert found.status == 2
    assert "torch was imported before the program began" in found.error


def test_no_torch(tmp_path: Path) -> None:
    """The base interpreter of the virtual environment has none; another has no torch to find."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("")
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    found = dry_run(folder, "--", str(bare), "train.py", environment={"PYTHONPATH": ""})
    assert found.status == 2
    assert found.error.endswith("has no torch")


def test_an_interpreter_that_is_another_program(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINS)
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho not a python\n")
    bare.chmod(0o755)
    found = dry_run(folder, "--", str(bare), "train.py")
    assert found.status == 2
    assert "ended before the program began: not a python" in found.error


@BOTH
@pytest.mark.slow
def test_an_interruption_ends_everything(tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    program = "import sys, time\nprint('here', flush=True)\ntime.sleep(600)\n"
    (folder / "train.py").write_text(program)
    process = start(folder, *options, "--show-output", "--", "python", "train.py")
    assert process.stderr is not None
    for line in process.stderr:
        if "here" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert err.strip().endswith("interrupted")
    for _ in range(100):
        if not processes_of(tmp_path):
            break
        time.sleep(0.05)
    assert processes_of(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
