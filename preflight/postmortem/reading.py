"""Reads logs as lines: streamed, decoded leniently, without the escape codes of terminals."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from msgspec import Struct
from msgspec.structs import replace

from preflight.postmortem.evidence import Evidence, LogPlace
from preflight.vocabulary.errors import UsageError

BLOCK = 1 << 18
"""Bytes read at once. A line that is longer is cut; the longest message known is a tenth of this."""

TAIL = 1 << 15
"""Bytes at the end of a skipped block that are read for the progress of the run."""

LONGEST = 1 << 13
"""Most characters that are matched at once: a pattern may take time with their square. Messages have some hundreds."""

SHOWN = 400
"""Most characters of a line that are shown."""

LEAD = 40
"""Characters of a long line that are shown before the message."""

SAMPLE = 1 << 13
"""Bytes that are inspected to tell text from binary data."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LOG_NAMES = re.compile(r"(?:slurm-.*|dmesg.*|.*\.(?:log|out|err|txt|stdout|stderr)(?:\.\d+)?(?:\.(?:gz|xz|bz2))?)")
_PACKED = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\0", lzma.open), (b"BZh", bz2.open))
_STREAM = re.compile(
    r"\s*(?:\[?(?:default)?(?:rank|local_rank)[ :=]?(?P<rank>\d+)\]?:?\s"  # torch: "[rank3]: Traceback"
    r"|(?P<label>\d{1,5}): "  # srun --label
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:err|out)>:?"
    r"|\((?P<actor>[\w.:]+ (?:rank=\d+ )?pid=\d+)[^)]*\))"  # Ray, vLLM
)


class LogLine(Struct, frozen=True):
    """One line without escape codes. `stream`: the rank that wrote it; "": the log does not tell."""

    path: str
    number: int
    text: str
    stream: str

    @property
    def place(self) -> LogPlace:
        return self.at(0)

    def at(self, start: int) -> LogPlace:
        """The place; a long line is shown from a little before `start`."""
        text = self.text
        if len(text) > SHOWN and start > LEAD:
            text = "..." + text[start - LEAD :]
        return LogPlace(self.path, self.number, text.strip()[:SHOWN])


class LogBlock(Struct, frozen=True):
    """Some whole lines as bytes: most blocks are never parsed. `edge`: the first or the last block of a log."""

    path: str
    number: int
    data: bytes
    edge: bool = False

    def lines(self, data: bytes | None = None, number: int | None = None) -> Iterator[LogLine]:
        """The lines that are not empty; all states of a progress bar have the same line number."""
        texts = (self.data if data is None else data).decode("utf-8", "replace").split("\n")
        for at, text in enumerate(texts, self.number if number is None else number):
            for part in text.split("\r"):
                part = _clean(part)
                for start in range(0, len(part), LONGEST):
                    piece = part[start : start + LONGEST]
                    if not piece.isspace():
                        yield LogLine(self.path, at, piece, _stream(piece))

    def tail(self) -> Iterator[LogLine]:
        """The last lines."""
        start = self.data.find(b"\n", len(self.data) - TAIL) + 1 if len(self.data) > TAIL else 0
        return self.lines(self.data[start:], self.number + self.data.count(b"\n", 0, start))


class Parser:
    """Reads the messages of one source (a library, a daemon) in a log: line by line, until the evidence is complete."""

    @property
    def awake(self) -> bool:
        """Whether it needs the next lines, whatever they contain: it is in the middle of a message."""
        return False

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        """The evidence that a line completes."""
        raise NotImplementedError

    def end(self) -> Iterator[Evidence]:
        """The evidence that the end of the log completes."""
        return iter(())


def logs(names: Iterable[str]) -> list[str]:
    """The files of a command: named ones, and those of named directories that look like logs. Raises UsageError."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name != "-" and path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.is_file() and _LOG_NAMES.fullmatch(one.name))
            if not inside:
                raise UsageError(f"{name}: no file in this directory has the name of a log; name the files yourself")
            found += map(str, inside)
        else:
            found.append(name)
    return list(dict.fromkeys(found))


def blocks(name: str) -> Iterator[LogBlock]:
    """A log in blocks of whole lines; `-` is standard input. Raises UsageError when it cannot be read as text."""
    try:
        if name == "-":
            if sys.stdin is None:
                raise UsageError("standard input is closed")
            yield from _blocks("<stdin>", sys.stdin.buffer)
            return
        path = Path(name)
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise UsageError(f"{name}: not a regular file")
        with path.open("rb") as file:
            yield from _blocks(name, file)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"{name}: cannot be read: {reason}") from error


def blocks_of(name: str, text: str) -> Iterator[LogBlock]:
    """The blocks of a text in memory."""
    return _blocks(name, io.BytesIO(text.encode("utf-8", "replace")))


def _blocks(name: str, file: IO[bytes]) -> Iterator[LogBlock]:
    """The blocks, read one ahead, so that the last one is marked as an edge."""
    number, held, first = 1, None, True
    for data in _texts(name, file):
        if held is not None:
            yield held
        held = LogBlock(name, number, data, first)
        number, first = number + data.count(b"\n"), False
    if held is not None:
        yield replace(held, edge=True)


def _texts(name: str, file: IO[bytes]) -> Iterator[bytes]:
    """The decompressed log as UTF-8, in pieces that end with a line (or have the most bytes of a line)."""
    reader = file
    start = _peek(reader)
    for magic, unpack in _PACKED:
        if start.startswith(magic):
            reader = cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", unpack(reader, "rb")), BLOCK))
            start = _peek(reader)
            break
    if _encoding(name, start) != "utf-8":
        wide = io.TextIOWrapper(reader, "utf-16", errors="replace")
        while text := wide.read(BLOCK):
            yield (text + wide.readline(BLOCK)).encode("utf-8", "replace")
        return
    while data := reader.read(BLOCK):
        yield data if data.endswith(b"\n") else data + reader.readline(BLOCK)


def _peek(reader: IO[bytes]) -> bytes:
    if isinstance(reader, io.BytesIO):
        return reader.getvalue()[:SAMPLE]
    peek = getattr(reader, "peek", None)
    return bytes(peek(SAMPLE)[:SAMPLE]) if peek is not None else b""


def _encoding(name: str, start: bytes) -> str:
    """The encoding. Raises UsageError for binary data."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"  # what PowerShell's redirection writes
    if start.startswith(b"LPKSHHRH"):
        raise UsageError(f"{name}: a binary journal; give the output of journalctl --file {name} instead")
    rest = start.lstrip(b"\0")  # a log that was truncated while it was open begins with zeros
    if rest.count(b"\0") * 100 > len(rest):  # a crash leaves some in a text; a binary file is full of them
        raise UsageError(f"{name}: a binary file, not a log")
    return "utf-8"


def _clean(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\0", "")


def _stream(text: str) -> str:
    found = _STREAM.match(text)
    if found is None:
        return ""
    return next((value for value in found.groups() if value is not None), "")
