"""Records of one process: lines of JSON in a folder that `preflight run` made. They are written at once, so that a
process that is killed leaves what it wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

FOLDER = "PREFLIGHT_RUN_RECORDS"
"""The folder for records, for all processes of a run."""
MODE = "PREFLIGHT_GUARD"
"""off, record, warn or enforce."""
OWN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
"""A file that is opened is none that a link leads to, and no program that this one starts has it."""
RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
"""Variables that tell a process its rank, and how many there are."""


def rank() -> tuple[int, int]:
    """The rank of this process, and the number of ranks."""
    for own, all_of_them in RANKS:
        stated, count = os.environ.get(own, ""), os.environ.get(all_of_them, "")
        if stated.isdigit():
            return int(stated), int(count) if count.isdigit() else 1
    return 0, 1


class Writer:
    """The file of one process. A full disk or a folder that is gone ends the records, never the program."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, f"rank{rank()[0]}-{os.getpid()}.jsonl")
        self._owner = os.getpid()
        self._file: int | None = None
        self._mark: int | None = None
        self.failed = False

    def write(self, kind: str, **values: Any) -> None:
        """One line. A fork of the process that opened the file writes nothing."""
        if self.failed or os.getpid() != self._owner:
            return
        line = json.dumps({"kind": kind, "at": round(time.time(), 3), **values}, default=str) + "\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | OWN, 0o600)
            data = line.encode("utf-8", "backslashreplace")
            if os.write(self._file, data) != len(data):
                self._fail("No space left on device")
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _fail(self, why: str) -> None:
        """The records end here, and the program goes on."""
        self.failed = True
        sys.stderr.write(f"preflight run: the records of this process end here, and it goes on: {why}\n")

    def saves(self, text: str) -> None:
        """The files that the program saved, whole or not at all: what is not known of them is not trusted."""
        if self.failed or os.getpid() != self._owner:
            return
        path = self._path[: -len("jsonl")] + "saves"
        try:
            file = os.open(path + "-new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OWN, 0o600)
            try:
                os.write(file, text.encode("utf-8", "surrogateescape"))
            finally:
                os.close(file)
            os.replace(path + "-new", path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            self._fail(error.strerror or str(error))

    def mark(self, phase: str, steps: int, batches: int, epoch: int) -> None:
        """Where the program is now, in a file of one line that is written over: it costs microseconds."""
        if self.failed or self._file is None or os.getpid() != self._owner:
            return
        try:
            if self._mark is None:
                path = self._path[: -len("jsonl")] + "phase"
                self._mark = os.open(path, os.O_WRONLY | os.O_CREAT | OWN, 0o600)
            os.pwrite(self._mark, f"{phase:<12}{steps:>20}{batches:>20}{epoch:>20}".encode("ascii"), 0)
        except OSError:
            self.failed = True


def writer() -> Writer | None:
    """The writer that the environment asks for."""
    folder = os.environ.get(FOLDER, "")
    if not folder or os.environ.get(MODE, "") == "off" or not os.path.isdir(folder):
        return None
    if hasattr(os, "getuid"):
        status, own = os.stat(folder), os.getuid()
        if status.st_mode & 0o022 or own not in (0, status.st_uid):  # root in a container has the folder of its host
            sys.stderr.write(f"preflight run: this process is not recorded: others may write into {folder}\n")
            return None
    return Writer(folder)
