"""Writing: the old file or the new one, never half, with everything else as it was."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.fixes.write import NotWritten, write_text
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings


def project(root: Path) -> Project:
    return Project(root, Settings())


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    read = project(tmp_path)
    read.source("a.yaml")
    path.write_text("a: 2\n")
    with pytest.raises(NotWritten, match=r"a\.yaml .* changed"):
        write_text(read, "a.yaml", "a: 3\n")
    assert path.read_text() == "a: 2\n"
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_files_outside_the_project_and_missing_ones_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "out.yaml").write_text("a: 1\n")
    root = tmp_path / "in"
    root.mkdir()
    (root / "link.yaml").symlink_to(tmp_path / "out.yaml")
    for path in ("../out.yaml", "link.yaml", "none.yaml"):
        with pytest.raises(NotWritten):
            write_text(project(root), path, "a: 2\n")
    assert (tmp_path / "out.yaml").read_text() == "a: 1\n"
    assert not (root / "none.yaml").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    path.chmod(0o444)
    with pytest.raises(NotWritten, match="read-only"):
        write_text(project(tmp_path), "a.yaml", "a: 2\n")
    assert path.read_text() == "a: 1\n"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match="No space left"):
        write_text(project(tmp_path), "a.yaml", "a: 2\n")
    assert path.read_text() == "a: 1\n"
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_mode_byte_order_mark_and_line_endings_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\n\xc3\xa9")
    path.chmod(0o750)
    read = project(tmp_path)
    text = read.source("run.sh").text
    write_text(read, "run.sh", text.replace("1", "2"))
    assert path.read_bytes() == b"\xef\xbb\xbfa: 2\r\n\xc3\xa9"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "a.yaml"
    target.write_text("a: 1\n")
    link = tmp_path / "a.yaml"
    link.symlink_to(target)
    write_text(project(tmp_path), "a.yaml", "a: 2\n")
    assert link.is_symlink()
    assert target.read_text() == "a: 2\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from preflight.fixes.write import write_text
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
root, moment = Path(sys.argv[1]), sys.argv[2]
real = getattr(os, moment.removeprefix("after-"))
def dying(*arguments):
    if moment.startswith("after-"):
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, moment.removeprefix("after-"), dying)
write_text(Project(root, Settings()), "a.yaml", "new: 2\\n" * 100_000)
"""


@pytest.mark.parametrize(
    ("moment", "new"),
    [("chmod", False), ("fsync", False), ("after-fsync", False), ("replace", False), ("after-replace", True)],
)
def test_killed_in_the_middle_the_file_is_the_old_one_or_the_new_one(tmp_path: Path, moment: str, new: bool) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("old: 1\n" * 100_000)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == ("new: 2\n" if new else "old: 1\n") * 100_000
