"""Records that cannot be written end with one line, and the program goes on."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from preflight.guard import records


def full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("broken", [full, lambda handle, data: len(data) // 2])
def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: Any
) -> None:
    writer = records.Writer(str(tmp_path))
    writer.write("start")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", broken)
        for _ in range(3):
            writer.write("peaks")
            writer.mark("forward", 3)
    writer.write("end")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "No space left on device" in told
    [path] = tmp_path.glob("*.jsonl")
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["start"]
