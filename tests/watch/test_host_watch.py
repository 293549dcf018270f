"""The host's figures, from folders as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.watch import host
from preflight.watch.host import ControlGroup, HostWatch, control_group, descendants, node, private_and_shared

GIB = 2**30


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host, "PROCESSES", tmp_path / "proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("text", ["", "nonsense", "0::/../../..", "4:cpu:/a"])
def test_no_group(machine: Path, text: str) -> None:
    (machine / "proc/self/cgroup").write_text(text)
    assert control_group() is None


def test_version_two(machine: Path) -> None:
    root = group(machine / "cgroup", memory__current="1")
    outer = group(root / "job", memory__max=f"{4 * GIB}\n", memory__current="9")
    inner = group(
        outer / "step", memory__max="max\n", memory__current=f"{3 * GIB}\n",
        memory__stat=f"anon 5\ninactive_file {GIB}\n",
        memory__events="low 0\nmax 7\noom 2\noom_kill 2\n",
    )  # fmt: skip
    (machine / "proc/self/cgroup").write_text("0::/job/step\n")
    found = control_group()
    assert found == ControlGroup(inner, 2)
    assert (found.limit, found.used, found.kills) == (4 * GIB, 2 * GIB, 2)


def test_version_one_and_a_container(machine: Path) -> None:
    root = group(
        machine / "cgroup/memory", memory__limit_in_bytes=f"{GIB}", memory__usage_in_bytes=f"{GIB}",
        memory__stat=f"cache 3\ntotal_inactive_file {GIB // 4}\n", memory__oom_control="under_oom 0\noom_kill 3\n",
    )  # fmt: skip
    (machine / "proc/self/cgroup").write_text("9:cpu:/x\n4:memory:/of/the/host\n0::/\n")
    found = control_group()
    assert found == ControlGroup(root, 1)
    assert (found.limit, found.used, found.kills) == (GIB, GIB * 3 // 4, 3)
    (root / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert found.limit is None


def test_a_group_that_is_gone_says_nothing(tmp_path: Path) -> None:
    gone = ControlGroup(tmp_path / "gone", 2)
    assert (gone.limit, gone.used, gone.kills) == (None, None, 0)


def test_processes_of_this_machine() -> None:
    assert os.getpid() in set(descendants(os.getppid()))
    private, _ = private_and_shared(os.getpid())
    assert private > 2**20
    assert private_and_shared(2**30) == (0, 0)
    total, available = node()
    assert total is None or (available is not None and available <= total)


def test_the_watch_keeps_the_most(machine: Path) -> None:
    root = group(machine / "cgroup", memory__current="100", memory__max="500", memory__events="oom_kill 1\n")
    (machine / "proc/self/cgroup").write_text("0::/\n")
    (machine / "proc/meminfo").write_text("MemTotal: 8 kB\nMemAvailable: 4 kB\n")
    watch = HostWatch(1, group=control_group())
    watch.start()
    group(root, memory__current="400", memory__events="oom_kill 3\n")
    found = watch.stop()
    assert (found.before, found.peak, found.limit, found.kills) == (100, 400, 500, 2)
    assert (found.total, found.least_available) == (8192, 4096)
