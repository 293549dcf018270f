"""The meter of host memory, on processes whose need is known."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.accuracy.host import meter

MIB = 2**20
TAKES = """
import mmap, os, sys, time
anonymous = bytearray(int(sys.argv[1]))
handle = os.open(f"/dev/shm/preflight-test-{os.getpid()}", os.O_CREAT | os.O_RDWR)
os.unlink(f"/dev/shm/preflight-test-{os.getpid()}")
os.write(handle, bytes(int(sys.argv[2])))   # held by its descriptor alone
child = os.fork()                            # shares every page
open(os.environ["HOST_PHASES"], "a").write('held {"told": 7}\\n')
time.sleep(0.4)
os._exit(0)
"""


@pytest.mark.parametrize("made", [meter.gauge, meter.Proc], ids=["what can be made here", "proc"])
def test_pages_count_once_and_files_without_a_mapping_count(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "gauge", made)
    found = meter.measure([[sys.executable, "-c", TAKES, str(48 * MIB), str(32 * MIB)]], os.environ, 2**30, limit=20)
    assert not found.killed
    # An interpreter's own pages are 10 to 30 MiB, by how many others share them; the file twice would be 32 more.
    assert 80 * MIB <= found.phases["held"] < 80 * MIB + 36 * MIB
    assert found.told == {"told": 7}


def test_what_grows_over_the_ceiling_is_ended() -> None:
    command = [sys.executable, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"]
    found = meter.measure([command], os.environ, 64 * MIB, limit=20)
    assert found.killed
    assert found.bytes < 512 * MIB


def test_a_failing_process_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="status 3"):
        meter.measure([[sys.executable, "-c", "raise SystemExit(3)"]], os.environ, 2**30, limit=20)


def test_descendants_are_found() -> None:
    assert os.getpid() in meter.tree([os.getppid()])
    assert Path(f"/proc/{os.getpid()}").exists()
