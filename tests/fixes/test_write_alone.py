"""Two runs that write fixes under one root, and what a killed one left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.fixes import write
from preflight.fixes.write import NotWritten, alone, remove_unfinished


def test_only_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    kept = [
        ".train.py.tmp",
        ".preflight-short.tmp",
        "preflight-abcdefgh.tmp",
        ".preflight-abcdefgh.tmp.bak",
        "train.py",
    ]
    for name in [*kept, ".preflight-abcd_fg1.tmp"]:
        (tmp_path / name).write_text("x")
    (tmp_path / ".preflight-abcdefgh.tmp").mkdir()
    (tmp_path / ".preflight-linklink.tmp").symlink_to("train.py")
    remove_unfinished([tmp_path, tmp_path / "missing"])
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, ".preflight-abcdefgh.tmp", ".preflight-linklink.tmp"])


def test_a_second_run_does_not_write_meanwhile_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "WAIT_SECONDS", 0.0)
    with alone(tmp_path) as sole:
        assert sole
        with pytest.raises(NotWritten, match="another preflight is writing fixes"), alone(tmp_path):
            pass
    with alone(tmp_path) as sole:
        assert sole
    assert os.listdir(tmp_path) == []
