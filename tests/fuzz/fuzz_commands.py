"""Command lines over changed projects: exit status, what is printed, what is written. Each in a forked process."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from random import Random

import fuzz_inputs
from fuzz_readers import Wrong, put
from fuzz_workers import MEMORY, SECONDS, _size

from preflight.memory.device.fit import subprocess as tracer_process

MISTAKES = re.compile(rb"internal error|internal-error")
TRACEBACK = re.compile(rb"^Traceback \(most recent[^\n]*\n(?:  .*\n)*?  File \"[^\"]*/preflight/", re.MULTILINE)
STATUSES = {0, 1, 2}
OPTIONS = (
    ["--explain"], ["--diff"], ["--diff", "--unsafe-fixes"], ["-f", "json"], ["-f", "sarif"], ["-f", "github"],
    ["-f", "concise"], ["--gpu", "RTX 4080"], ["--gpu", "H100"], ["--machine", "machine.toml"], ["--from-hook"],
    ["--exit-zero"], ["--fail-on", "info"], ["--set", "train.seq_len=512"], ["--baseline", "b.json"],
    ["--time-limit", "5"],
)  # fmt: skip


def run(seed: int, number: int, root: Path) -> str:
    """Makes one command, runs it, and looks at what it did. Raises Wrong."""
    random = Random(f"command/{seed}/{number}")
    name, words, files = _made(random, seed, number)
    put(files, root / "tree")
    try:
        _judge(root, words)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return name


def _made(random: Random, seed: int, number: int) -> tuple[str, list[str], dict[str, str]]:
    """The command's name, its words, and the files of its directory."""
    name = random.choice(("check", "check", "check", "check", "estimate", "postmortem", "machine"))
    kind = {"check": "project", "estimate": "job", "postmortem": "log", "machine": "conf"}[name]
    one = fuzz_inputs.made(seed, number, random.choice((kind, kind, kind, "project")) if name != "machine" else kind)
    files = dict(one.files)
    target = next(iter(files), "")
    if name == "check":
        for beside, other in (("machine.toml", "machine"), ("b.json", "baseline"), ("preflight.toml", "settings")):
            if random.random() < 0.2:
                files[beside] = fuzz_inputs.made(seed, number, other).text
        words = ["check", random.choice((".", target or "."))]
        for extra in random.sample(OPTIONS, random.randint(0, 3)):
            words += extra
    elif name == "estimate":
        words = ["estimate", target, *random.choice(([], ["--gpu", "A100"], ["--output-format", "json"]))]
    elif name == "postmortem":
        words = ["postmortem", target]
    else:
        words = ["machine", "import", "slurm", "--conf", target]
    return name, [word.replace("\0", "") for word in words], {**files, ".git/HEAD": "ref: refs/heads/main\n"}


def _judge(root: Path, words: Sequence[str]) -> None:
    tree, said = root / "tree", root / "said"
    before = _contents(tree)
    status = command(tree, said, [*words, "--quiet"] if words[0] in ("check", "estimate") else words)
    text = said.read_bytes()
    where = f"preflight {' '.join(words)!r}: "
    if os.WIFSIGNALED(status):
        raise Wrong(f"{where}signal {os.WTERMSIG(status)}\n{text[-3000:].decode(errors='replace')}")
    if os.WEXITSTATUS(status) not in STATUSES:
        raise Wrong(f"{where}exit status {os.WEXITSTATUS(status)}")
    if found := MISTAKES.search(text) or TRACEBACK.search(text):
        raise Wrong(f"{where}{text[max(0, found.start() - 300) : found.start() + 4000].decode(errors='replace')}")
    if _contents(tree) != before:
        raise Wrong(f"{where}it wrote into the checked tree")


def command(tree: Path, said: Path, words: Sequence[str]) -> int:
    """The wait status of a command that runs in `tree`; what it prints is in the file `said`."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    status = 120
    try:
        become(tree, said)
        from preflight.cli import run as run_words

        status = run_words(list(words))
    finally:
        os._exit(status)


def become(tree: Path, said: Path) -> None:
    """Makes this process one that the command line could have started in `tree`."""
    import sys

    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(handle, number)
    os.close(handle)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(tree)
    os.environ.pop("PREFLIGHT_DEBUG", None)
    tracer_process.installed = _without_torch  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grown = _size()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = grown + MEMORY if hard == resource.RLIM_INFINITY else min(hard, grown + MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + int(SECONDS) + 1, used + int(SECONDS) + 1))


def _without_torch(_: str | None) -> tracer_process.Installed:
    """A trace takes seconds, and its input is a model, not a text."""
    return tracer_process.Installed(False, "")


def _contents(tree: Path) -> dict[str, bytes]:
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()}
