"""Whatever is done to a small project, a kept result says what a new check would say."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kept_results import PROJECT, SWEEP, Server, write

CHECK = ("check", ".", "-f", "concise")
TEXTS = {
    "sweep.yaml": (SWEEP, SWEEP.replace("96", "64"), SWEEP.replace("96", "8"), "method: [", ""),
    "sizes.py": ("LENGTH = 512\n", "LENGTH = 256\n", "LENGTH = 768\n", "LENGTH = (\n"),
    "sizes/__init__.py": ("LENGTH = 128\n",),
    "preflight.toml": (*PROJECT["preflight.toml"].splitlines(keepends=True)[:1], 'gpu = "RTX 3060"\n', "gpu ="),
    "sweeps/other.yaml": (SWEEP, SWEEP.replace("16", "17")),
    "run.sh": ("#!/bin/bash\npython train.py --batch_size 256\n", "#!/bin/bash\ntrue\n"),
}


def rewritten(root: Path, chance: random.Random) -> None:
    """Another text, sometimes with the old times."""
    name = chance.choice(list(TEXTS))
    path = root / name
    old = path.stat() if path.is_file() else None
    if path.parent.exists() and not path.parent.is_dir():
        return
    if path.is_dir():
        shutil.rmtree(path)
    write(root, {name: chance.choice(TEXTS[name])})
    if old is not None and chance.random() < 0.5:
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))


def removed(root: Path, chance: random.Random) -> None:
    path = root / chance.choice(["sizes.py", "run.sh", "sweep.yaml", "sweeps", "sizes", "cluster.toml"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def linked(root: Path, chance: random.Random) -> None:
    path, target = root / "link.yaml", chance.choice(["sweep.yaml", "sweeps/other.yaml", "nothing.yaml", "link.yaml"])
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def moved(root: Path, chance: random.Random) -> None:
    one, other = (root / name for name in chance.sample(["sweeps", "more", "notes"], 2))
    if one.is_dir() and not other.exists():
        one.rename(other)


def restored(root: Path, chance: random.Random) -> None:
    for name, text in PROJECT.items():
        if not (root / name).parent.exists() or (root / name).parent.is_dir():
            write(root, {name: text} if not (root / name).is_dir() else {})


EDITS: tuple[Callable[[Path, random.Random], None], ...] = (rewritten, rewritten, removed, linked, moved, restored)


def edited(server: Server, root: Path, seed: int, count: int) -> int:
    """How many of the checks after `count` edits were answered from what was kept."""
    chance, kept = random.Random(seed), 0
    for number in range(count):
        chance.choice(EDITS)(root, chance)
        found = server.run(root, *CHECK, settled=chance.random() < 0.5)
        assert found.said == server.run(root, *CHECK, "--no-cache").said, (seed, number)
        again = server.run(root, *CHECK)
        assert again.said == found.said, (seed, number)
        kept += not again.anew
    return kept


def test_some_edits(server: Server, tmp_path: Path) -> None:
    assert edited(server, write(tmp_path / "project", PROJECT), 1, 6) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_edits(server: Server, tmp_path: Path, seed: int) -> None:
    assert edited(server, write(tmp_path / "project", PROJECT), seed, 25) > 5
