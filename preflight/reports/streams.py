"""The only place that writes to a stream. It shows control characters and workflow commands instead of sending them.

A settings key, a file name, a line of a log and an argument can each hold an escape sequence for the terminal, a
character that changes the direction of writing, or a line that a build service reads as a command. Every command writes
through `show` or `complain`, so a new message is safe without further care.

Services that read commands from a step's output: GitHub takes `::name` at the start of a line, blanks before it left
out, and `##[name]` anywhere in it (actions/runner, src/Runner.Common/ActionCommand.cs); Azure Pipelines takes
`##vso[name]` and TeamCity `##teamcity[name`.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import OutputError, ReaderGone

Kind = Literal["text", "json", "github", "patch"]
"""Kinds of output: text, JSON (or TOML), workflow commands of GitHub with text after them, or a diff."""

KINDS = ("text", "json", "github", "patch")

_UNSAFE = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, except newline and tab
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    r"\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # ends of lines, and invisible characters
    r"\ud800-\udfff]"  # halves of characters: bytes of a file's name that are not UTF-8
)
_CONTROL = regex(_UNSAFE)
_COLOUR = r"\x1b\[(?:0|[12]|3[1-6])(?:;(?:[12]|3[1-6]))*m"
"""The escape sequences of `reports.style.Look.paint`, which hide and move nothing."""
_CONTROL_OR_COLOUR = regex(f"{_COLOUR}|{_UNSAFE}")
_MARKED = regex(r"#(?=#\w*\[)")
_LED = regex(rf"^((?:\s|{_COLOUR})*):(?=:[A-Za-z])", re.MULTILINE)


def clean(text: str) -> str:
    """Text of the user for use in a line: one line, without control characters."""
    return _CONTROL.sub(_shown, text.replace("\t", "    ").replace("\n", " "))


def in_line(text: str, stream: TextIO) -> str:
    """Text of the user for a line that is drawn on a terminal and removed again."""
    return _fitting(without_commands(clean(text)), "text", stream)


def safe(text: str, kind: Kind = "text", colour: bool = False) -> str:
    """Text of a kind without control characters and workflow commands. With `colour`, colours of `Look.paint` stay."""
    if kind == "patch":
        return text
    if kind == "json":
        return _MARKED.sub(r"\\u0023", _CONTROL.sub(_in_json, text))
    text = (_CONTROL_OR_COLOUR if colour else _CONTROL).sub(_shown, text)
    return text if kind == "github" else without_commands(text)


def without_commands(text: str) -> str:
    """Text without commands of build services."""
    return _LED.sub(r"\1\\x3a", _MARKED.sub(r"\\x23", text))


def _shown(found: re.Match[str]) -> str:
    """A character as an escape of Python; a colour unchanged."""
    if len(found[0]) > 1:
        return found[0]
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _in_json(found: re.Match[str]) -> str:
    """A character as an escape of JSON. Half of a surrogate pair is replaced, because JSON readers disagree on it."""
    code = ord(found[0])
    if 0xD800 <= code < 0xE000:
        return "\\ufffd"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"


def coloured(stream: TextIO | None, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a stream gets colours: a terminal unless NO_COLOR is set, every stream if FORCE_COLOR is set."""
    env = os.environ if environment is None else environment
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal(stream) and env.get("TERM") != "dumb"


def terminal(stream: TextIO | None) -> bool:
    """Whether a stream is open and is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


_shown_so_far: list[tuple[str, str, bool]] | None = None


def listen() -> list[tuple[str, str, bool]]:
    """A list to which every text is added that is shown from now on: the arguments of `show`."""
    global _shown_so_far
    _shown_so_far = []
    return _shown_so_far


def show(text: str, kind: Kind = "text", err: bool = False) -> None:
    """Write whole lines to standard output or error. Raises OutputError if standard output cannot be written."""
    stream = sys.stderr if err else sys.stdout
    if not text:
        return
    if _shown_so_far is not None:
        _shown_so_far.append((text, kind, err))
    if stream is None or stream.closed:
        if not err:
            raise OutputError("standard output is closed")
        return
    try:
        if kind == "patch":
            _write_patch(stream, text)
        else:
            stream.write(_fitting(safe(text, kind, coloured(stream)), kind, stream))
        stream.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error
    except (OSError, ValueError) as error:
        if not err:
            raise OutputError(f"standard output cannot be written: {_reason(error)}") from error


LONGEST = 2000
"""The most characters of a line on standard error."""


def complain(text: str) -> None:
    """Write one line to standard error, cut if it is too long."""
    line = clean(text)
    show((line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}...") + "\n", err=True)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _fitting(text: str, kind: Kind, stream: TextIO) -> str:
    """Text that the encoding of the stream can hold. Other characters become escapes."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        if kind == "json":
            return re.sub(r"[^\x00-\x7f]", _in_json, text)
        return text.encode("ascii", "backslashreplace").decode("ascii")
    return text


def _write_patch(stream: TextIO, text: str) -> None:
    """Write a diff with the exact bytes of the files, so that `patch` accepts it.

    A terminal gets it as text. GitHub's log would read commands in it: a line before the diff and one after it switch
    that off, and `patch` and `git apply` skip both lines.
    """
    if terminal(stream):
        stream.write(_fitting(safe(text), "text", stream))
        return
    if os.environ.get("GITHUB_ACTIONS") == "true" and not _is_file(stream):
        token = os.urandom(16).hex()
        text = f"::stop-commands::{token}\n{text}::{token}::\n"
    bare = getattr(stream, "buffer", None)
    if bare is None:
        stream.write(text)
        return
    stream.flush()
    bare.write(text.encode("utf-8", "surrogateescape"))
    bare.flush()


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def hold_standard_descriptors() -> None:
    """Open /dev/null for every standard stream that is closed. Otherwise the next file would get its number, and the
    output of another program would be written into that file."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
