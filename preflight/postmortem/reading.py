"""Logs as lines: streamed, decoded leniently, freed of what terminals and collectors put around them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from preflight.errors import UsageError
from preflight.postmortem.evidence import Place
from preflight.records import dataclass

CHUNK = 1 << 16
"""Bytes read at once; a line is cut there. The longest message known here is a tenth of it."""

SHOWN = 400
"""Characters of a line that are kept to be shown."""

LEAD = 40
"""Characters shown before what matters in a long line."""

SAMPLE = 1 << 13
"""Bytes looked at to tell text from binary."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LOG_NAMES = re.compile(r"(?:slurm-.*|dmesg.*|.*\.(?:log|out|err|txt|stdout|stderr)(?:\.\d+)?(?:\.(?:gz|xz|bz2))?)")
_PACKED = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\0", lzma.open), (b"BZh", bz2.open))
_STREAM = re.compile(
    r"\s*(?:\[?(?:default)?(?:rank|local_rank)[ :=]?(?P<rank>\d+)\]?:?\s"  # torch: "[rank3]: Traceback"
    r"|(?P<label>\d{1,5}): "  # srun --label
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:err|out)>:?"
    r"|\((?P<actor>[\w.:]+ (?:rank=\d+ )?pid=\d+)[^)]*\))"  # Ray, vLLM
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: cleaned of escapes; `stream` tells the ranks of one log apart ("" where nothing does)."""

    path: str
    number: int
    text: str
    stream: str

    @property
    def place(self) -> Place:
        return self.at(0)

    def at(self, start: int) -> Place:
        """The place, showing a long line from a little before `start` on."""
        text = self.text
        if len(text) > SHOWN and start > LEAD:
            text = "..." + text[start - LEAD :]
        return Place(self.path, self.number, text.strip()[:SHOWN])


def logs(names: Iterable[str]) -> list[str]:
    """The files of a command: named ones, and those of named directories that look like logs. Raises UsageError."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name != "-" and path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.is_file() and _LOG_NAMES.fullmatch(one.name))
            if not inside:
                raise UsageError(f"{name}: no file in this directory is named like a log; name the files")
            found += map(str, inside)
        else:
            found.append(name)
    return list(dict.fromkeys(found))


def lines(name: str) -> Iterator[Line]:
    """The lines of a log, `-` for standard input. Raises UsageError where it cannot be read as text."""
    try:
        if name == "-":
            yield from _lines("<stdin>", sys.stdin.buffer)
            return
        path = Path(name)
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise UsageError(f"{name}: not a regular file")
        with path.open("rb") as file:
            yield from _lines(name, file)
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"{name}: cannot be read: {reason}") from error


def lines_of(name: str, text: str) -> Iterator[Line]:
    """The lines of a text that is here already."""
    return _lines(name, io.BytesIO(text.encode("utf-8", "replace")))


def _lines(name: str, file: IO[bytes]) -> Iterator[Line]:
    reader = io.BufferedReader(file, CHUNK) if isinstance(file, io.RawIOBase) else file
    start = _peek(reader)
    for magic, unpack in _PACKED:
        if start.startswith(magic):
            reader = cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", unpack(reader, "rb")), CHUNK))
            start = _peek(reader)
            break
    encoding = _encoding(name, start)
    if encoding != "utf-8":
        text: Iterable[str] = io.TextIOWrapper(reader, encoding, errors="replace")
        pieces: Iterator[tuple[int, str]] = enumerate(text, 1)
    else:
        pieces = _pieces(reader)
    for number, piece in pieces:
        for part in piece.split("\r"):  # progress bars draw over themselves
            part = _clean(part)
            if part.strip():
                yield Line(name, number, part, _stream(part))


def _peek(reader: IO[bytes]) -> bytes:
    peek = getattr(reader, "peek", None)
    return bytes(peek(SAMPLE)[:SAMPLE]) if peek is not None else b""


def _pieces(reader: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Line numbers and texts; of a line longer than CHUNK several, all with its number."""
    number, whole = 1, True
    while data := reader.readline(CHUNK):
        whole = data.endswith(b"\n")
        yield number, data.decode("utf-8", "replace")
        number += whole


def _encoding(name: str, start: bytes) -> str:
    """How the text is written. Raises UsageError for what is none."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"  # what PowerShell's redirection writes
    if start.startswith(b"LPKSHHRH"):
        raise UsageError(f"{name}: a binary journal; write it out with journalctl --file {name} and give that")
    rest = start.lstrip(b"\0")  # a log that was cut off while open begins with a hole
    if b"\0" in rest:
        raise UsageError(f"{name}: a binary file, not a log")
    return "utf-8"


def _clean(text: str) -> str:
    return _ESCAPES.sub("", text).replace("\0", "").rstrip("\n")


def _stream(text: str) -> str:
    found = _STREAM.match(text)
    if found is None:
        return ""
    return next((value for value in found.groups() if value is not None), "")
