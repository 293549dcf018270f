"""What a user names to be written: files whole, devices and pipes as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from preflight.reports.outputs import write_output
from preflight.vocabulary.errors import UsageError


def device(path: Path, major: int, minor: int) -> Path:
    try:
        os.mknod(path, 0o020666, os.makedev(major, minor))
    except (AttributeError, PermissionError):
        pytest.skip("only an administrator makes devices")
    try:
        path.open("rb").close()
    except PermissionError:
        pytest.skip("no devices on this file system")
    return path


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    null = device(tmp_path / "null", 1, 3)
    write_output(null, "text")
    assert null.is_char_device()


def test_a_device_that_is_full_is_an_error(tmp_path: Path) -> None:
    full = device(tmp_path / "full", 1, 7)
    with pytest.raises(UsageError, match="No space left"):
        write_output(full, "text")
    assert full.is_char_device()


def test_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a directory"):
        write_output(tmp_path, "text")


def test_a_pipe_that_nobody_reads_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe: cannot be written"):
        write_output(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_gets_everything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    held = os.open(tmp_path / "pipe", os.O_WRONLY)  # else the reader may find the end before there is a beginning
    text, found = "x" * 300_000, bytearray()

    def read() -> None:
        with os.fdopen(reader, "rb") as pipe:
            found.extend(pipe.read())

    thread = threading.Thread(target=read)
    thread.start()
    write_output(tmp_path / "pipe", text)
    os.close(held)
    thread.join()
    assert found.decode() == text


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1"])
@pytest.mark.parametrize("to_a_file", [False, True])
def test_standard_output_by_its_name(tmp_path: Path, name: str, to_a_file: bool) -> None:
    """Nothing is put in the place of the link, and what a terminal obeys is shown, as everywhere."""
    code = (
        "import pathlib, sys; from preflight.reports.outputs import write_output; "
        "write_output(pathlib.Path(sys.argv[1]), 'a\\x1b')"
    )
    command = [sys.executable, "-c", code, name]
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, stdout=out if to_a_file else subprocess.PIPE, check=True)
    assert (done.stdout or (tmp_path / "out").read_bytes()) == b"a\\x1b"
    assert Path("/dev/stdout").is_symlink()


def test_a_link_is_replaced_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    """A tree's own link decides nothing about files elsewhere."""
    (tmp_path / "elsewhere").write_text("old")
    (tmp_path / "report").symlink_to("elsewhere")
    write_output(tmp_path / "report", "new")
    assert ((tmp_path / "report").read_text(), (tmp_path / "elsewhere").read_text()) == ("new", "old")


def test_mode_and_umask(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    (tmp_path / "old").chmod(0o640)
    for name in ("old", "new"):
        write_output(tmp_path / name, "text")
    mask = os.umask(0)
    os.umask(mask)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("old", "new")]
    assert modes == [0o640, 0o666 & ~mask]
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
