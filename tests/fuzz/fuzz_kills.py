"""Fixes that are killed in the middle: every file has its old or its new text, and the next run leaves nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from random import Random

import fuzz_seeds
from fuzz_commands import become
from fuzz_readers import Wrong, put

WORDS = ("check", ".", "--fix", "--gpu", "RTX 4080", "--quiet")
"""The fix that is killed."""
_STEPS = ("open", "os.rename", "os.chmod", "os.remove", "os.chown")


def run(seed: int, number: int, root: Path) -> str:
    """Kills one fix, lets the next come to its end, and looks at the files. Raises Wrong."""
    random = Random(f"kill/{seed}/{number}")
    files, fixed = random.choice(fixable())
    by_step = random.random() < 0.7
    tree = root / "tree"
    put(files, tree)
    try:
        status = _fix(tree, root / "said", random.randint(1, 7) if by_step else 0, random.random() * 0.3)
        where = f"kill {number} ({'step' if by_step else 'time'}, {sorted(files)}): "
        for name, text in _texts(tree).items():
            if name in files and text not in (files[name], fixed[name]):
                raise Wrong(f"{where}{name} is torn")
        _fix(tree, root / "said", 0, None)
        after = _texts(tree)
        if set(after) - set(files):
            raise Wrong(f"{where}left behind: {sorted(set(after) - set(files))}")
        if after != dict(fixed):
            wrong = [name for name in fixed if after.get(name) != fixed[name]]
            raise Wrong(f"{where}the next run did not finish the fix of {wrong}")
        return "killed" if os.WIFSIGNALED(status) else "came to its end"
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fix(tree: Path, said: Path, step: int, seconds: float | None) -> int:
    """The status of a fix that is killed at its n-th step that writes, or after a time; None: it is not killed."""
    pid = os.fork()
    if pid == 0:
        status = 120
        try:
            become(tree, said)
            if step:
                sys.addaudithook(_Killer(step, tree))
            from preflight.cli import run as run_words

            status = run_words(list(WORDS))
        finally:
            os._exit(status)
    if not step and seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


class _Killer:
    """Kills its own process at the n-th step that touches the tree to write."""

    def __init__(self, step: int, tree: Path) -> None:
        self.left, self.tree = step, os.path.realpath(tree)

    def __call__(self, event: str, words: tuple[object, ...]) -> None:
        if event not in _STEPS:
            return
        if event == "open" and not (isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _texts(tree: Path) -> dict[str, str]:
    return {path.relative_to(tree).as_posix(): path.read_text() for path in sorted(tree.rglob("*")) if path.is_file()}


@lru_cache(maxsize=1)
def fixable() -> tuple[tuple[Mapping[str, str], Mapping[str, str]], ...]:
    """Projects that a fix changes, each with what it makes of them; fixing what is fixed changes nothing more."""
    found = []
    home = Path(_scratch())
    for number, files in enumerate(fuzz_seeds.fixed_examples()):
        tree = home / str(number)
        put(files, tree)
        before = _texts(tree)
        _fix(tree, home / "said", 0, None)
        once = _texts(tree)
        if once != before:
            _fix(tree, home / "said", 0, None)
            if _texts(tree) == once and set(once) == set(before):
                found.append((before, once))
    shutil.rmtree(home, ignore_errors=True)
    return tuple(found)


def _scratch() -> str:
    from fuzz_workers import scratch

    return scratch()
