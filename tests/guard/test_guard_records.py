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
            writer.mark("forward", 3, 3, 0)
    writer.write("end")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "No space left on device" in told
    [path] = tmp_path.glob("*.jsonl")
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["start"]


def test_a_link_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target = tmp_path / "records", tmp_path / "target"
    folder.mkdir(0o700)
    target.write_text("kept")
    path = folder / f"rank0-{os.getpid()}.jsonl"
    path.symlink_to(target)
    records.Writer(str(folder)).write("start")
    assert "the records of this process end here" in capsys.readouterr().err
    path.unlink()
    path.with_suffix(".phase").symlink_to(target)
    writer = records.Writer(str(folder))
    writer.write("start")
    writer.mark("forward", 3, 3, 0)
    assert (writer.failed, target.read_text()) == (True, "kept")


def test_a_folder_that_others_may_write_has_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(records.FOLDER, str(tmp_path))
    monkeypatch.delenv(records.MODE, raising=False)
    tmp_path.chmod(0o700)
    assert records.writer() is not None
    tmp_path.chmod(0o770)
    assert records.writer() is None
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert records.writer() is None
    assert capsys.readouterr().err.count("others may write into") == 2
