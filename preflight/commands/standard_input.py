"""`preflight check - --stdin-filename NAME`: standard input is checked as that file of its project, as editors ask."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from preflight.engine.files import Batch, batch_of
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.project import BOM, MARKED, MAX_BYTES

NAME = "--stdin-filename"


class Given(Struct, frozen=True):
    """The text of standard input, and the file that it is checked as. That file is not read, and need not exist."""

    batch: Batch
    texts: dict[str, str]


def given(paths: Sequence[str], name: str | None, cwd: Path) -> Given | None:
    """What standard input holds; None where PATHS do not ask for it. Raises UsageError."""
    if "-" not in paths:
        if name is not None:
            raise UsageError(f"{NAME}: it names standard input; write `-` as the path")
        return None
    if len(paths) > 1:
        raise UsageError("-: standard input is checked alone, without other paths")
    if name is None:
        raise UsageError(f"-: say with {NAME} NAME which file this is; the name and its folder decide how it is read")
    batch = batch_of(Path(os.path.abspath(cwd / name)), cwd)
    text = _text(name)
    return Given(batch, dict.fromkeys(batch.named, text))


def _text(name: str) -> str:
    """The text as a file of this name would have it. Raises UsageError for what is no text."""
    stream = sys.stdin
    if stream is None or stream.closed:
        raise UsageError("-: standard input is closed")
    data = stream.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"-: standard input is larger than {MAX_BYTES >> 20} MiB")
    if b"\0" in data:
        raise UsageError("-: standard input is binary")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"-: standard input is not UTF-8 text (byte {error.start})") from error
    return text.removeprefix(BOM) if name.lower().endswith(MARKED) else text
