"""The result cache of `preflight check`: returns the kept result of an unchanged run, or keeps a new one.

A result has the output of a run, and everything that the run observed (`system.observed`): files that it read, looked
for, listed and imported. The name of its file is a hash of the command line, the current directory, this Python, and
the variables and streams that change the output. The result is valid as long as all observations are the same.

This module is imported before everything else of preflight, and answers without the rest.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from preflight import __version__
from preflight.reports import streams
from preflight.system import import_path, kept_files, observed
from preflight.system.files import read_bytes
from preflight.vocabulary.errors import OutputError, ReaderGone

FORMAT = 2
"""Of a kept result; another number is another preflight's, and as if it were not there."""
VARIABLES = (
    "APPDATA", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "HF_HOME", "HOME", "LINES", "LOCALAPPDATA", "NO_COLOR",
    "PATH", "PREFLIGHT_DEBUG", "PREFLIGHT_STORE", "PYTHONPATH", "TERM", "USERPROFILE", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME",
)  # fmt: skip
"""Variables of the environment that a check reads, or a library that it asks; tests/architecture compares the list."""
_SAYS = (0, 1)
"""Exit statuses of a check that came to its end; 2 is an error, ours or the user's."""

Shown = list[tuple[str, str, bool]]


class Run:
    """A check that is under way, and where its answer is to be kept."""

    def __init__(self, path: str, question: dict[str, Any]) -> None:
        self.path, self.question = path, question
        self.complete = False
        self.started = time.time_ns()
        self.record = observed.start()
        self.shown: Shown = streams.listen()

    def keep(self, status: int) -> None:
        """Keeps the output of this run, if the same run would give the same output."""
        if status not in _SAYS or not self.complete or self.record.flaws:
            return
        packages = _observe_code(self.started)
        answer = {"packages": packages, "code": _code(packages, self.started), "shown": self.shown, "status": status}
        answer["until"] = self.record.until
        observed.stop()
        if not self.record.flaws:
            _write(self.path, self.question, answer, self.record.notes)


_run: Run | None = None
_refused = ""


def answered(words: Sequence[str]) -> None:
    """Ends the process with the answer of a check that was kept; comes back where the check has to be made."""
    streams.hold_standard_descriptors()
    found = begin(words)
    if found is None:
        return
    try:
        for text, kind, err in found["shown"]:
            streams.show(text, kind, err)
        status = int(found["status"])
    except ReaderGone:
        status = 2
    except OutputError as error:
        streams.complain(f"preflight: error: {error}")
        status = 2
    os._exit(status)


def begin(words: Sequence[str]) -> dict[str, Any] | None:
    """The kept result of a command line: output and exit status. None: the check has to run."""
    global _run, _refused
    if "--no-cache" in words or "-" in words:
        _refused = "--no-cache was given" if "--no-cache" in words else "standard input is checked"
        return None
    try:
        home = kept_files.results(words)
    except kept_files.NotKept as error:
        _refused = str(error)
        return None
    question = _question(words)
    if question is None:
        _refused = "the current directory or a standard stream is gone"
        return None
    text = json.dumps(question, sort_keys=True)
    path = os.path.join(home, f"{sha256(text.encode()).hexdigest()}.json")
    found = _read(path, question)
    if found is None:
        _run = Run(path, question)
    return found


def end(status: int) -> None:
    """Keeps the output of the run, if it may be kept. A full or read-only disk is no error."""
    if _run is not None:
        with suppress(OSError):
            _run.keep(status)


def said_all() -> None:
    """The check came to its end. `--help` ends with status 0, too, and says what this module does not hear."""
    if _run is not None:
        _run.complete = True


def refused() -> str:
    """Why nothing is read or kept in this run; "" where it is."""
    return _refused


def only(why: str) -> None:
    """The result of this run is not kept: the run does more than report."""
    observed.not_final(why)


def usage() -> tuple[dict[str, object], dict[str, object]]:
    """Where results are, and traced laws; how many, their bytes, and why no result is used, if none is."""
    found: list[dict[str, object]] = []
    for path in (kept_files.place(), kept_files.laws()):
        files = list(kept_files.kept(path)) if path is not None else []
        found.append({"path": path, "entries": len(files), "bytes": sum(one.bytes for one in files)})
    why = None
    try:
        kept_files.results()
    except kept_files.NotKept as error:
        why = str(error)
    return {**found[0], "refused": why, "limit": kept_files.limit()}, found[1]


def clear(laws: bool) -> tuple[int, int]:
    """Takes the results away, and the traced laws; how many files went, and their bytes."""
    places = [kept_files.place(), *([kept_files.laws()] if laws else [])]
    files = [one for path in places if path is not None for one in kept_files.kept(path)]
    gone = [one.bytes for one in files if kept_files.remove(one)]
    return len(gone), sum(gone)


# --- the question -----------------------------------------------------------------------------------------------------


def _question(words: Sequence[str]) -> dict[str, Any] | None:
    """All that decides an answer and is known at the start; None where it cannot be told."""
    looks = [_look(stream) for stream in (sys.stdout, sys.stderr)]
    try:
        cwd = os.getcwd()
    except OSError:
        return None
    if None in looks:
        return None
    return {
        "format": FORMAT,
        "preflight": __version__,
        "python": [sys.version, sys.executable, sys.prefix, list(map(str, sys.flags)), list(sys.path)],
        "words": list(words),
        "cwd": cwd,
        "trees": import_path.checked_trees(list(words)),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "streams": looks,
    }


def _look(stream: Any) -> list[object] | None:
    """The properties of a stream that change the output: whether it is a terminal, its width, its encoding."""
    if stream is None or stream.closed:
        return None
    size = None
    if stream.isatty():
        try:
            size = list(os.get_terminal_size(stream.fileno()))
        except (OSError, ValueError):
            return None
    return [stream.isatty(), size, stream.encoding, stream.errors]


# --- the code that answers --------------------------------------------------------------------------------------------


def _observe_code(started: int) -> list[str]:
    """Notes the modules that were imported, and the directories in which others would be found; the packages of
    preflight itself are given back, to be compared as a whole. A file that changed since the start of the run is a
    flaw: nobody knows which of its contents was imported."""
    packages = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    rules = getattr(sys.modules.get("preflight_rules"), "__path__", None)
    packages += list(rules) if rules else []
    library = os.path.dirname(os.__file__) + os.sep
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or any(import_path.inside(file, package) for package in packages):
            continue
        if not file.startswith(library) or f"{os.sep}site-packages{os.sep}" in file:
            observed.depends_on(file, started)
    for entry in sys.path:
        if not observed.is_dir(entry):
            observed.depends_on(entry)
            continue
        for name, _ in observed.entries(entry):
            if name.endswith((".dist-info", ".egg-info")):
                observed.depends_on(os.path.join(entry, name, "entry_points.txt"), started)
    return packages


def _code(packages: Sequence[str], started: int | None = None) -> str:
    """A hash of the names, sizes and times of all files of preflight: of its code, its tables and its laws. A file that
    changed since the start of a run is a flaw of the run."""
    found: list[str] = []
    waiting = list(packages)
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting += [entry.path] if entry.name != "__pycache__" else []
                else:
                    status = entry.stat()
                    if started is not None and observed.changed_since(status, started):
                        observed.not_final(f"{entry.path} changed during the run")
                    found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")
    return sha256("\n".join(sorted(found)).encode("utf-8", "surrogatepass")).hexdigest()


# --- the file ---------------------------------------------------------------------------------------------------------


def _write(path: str, question: dict[str, Any], answer: dict[str, Any], notes: observed.Notes) -> None:
    body = json.dumps({"question": question, "answer": answer, "notes": notes}, separators=(",", ":")).encode()
    kept_files.save(path, sha256(body).hexdigest().encode() + b"\n" + body)


def _read(path: str, question: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a question, None where none is kept that holds. A file that is not whole is no answer."""
    data = kept_files.load(path)
    if data is None:
        return None
    checksum, _, body = data.partition(b"\n")
    if checksum != sha256(body).hexdigest().encode():
        return None
    try:
        found = json.loads(body)
        answer: dict[str, Any] = found["answer"]
        if found["question"] != question or answer["status"] not in _SAYS:
            return None
        if answer["until"] and observed.passed(answer["until"]):
            return None
        if _code(answer["packages"]) != answer["code"]:
            return None
        holds, renewed = observed.unchanged(found["notes"], _again)
        if not holds or not all(_plain(*one) for one in answer["shown"]):
            return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if renewed:
        _write(path, question, answer, found["notes"])
    return answer


def _plain(text: object, kind: object, err: object) -> bool:
    return isinstance(text, str) and kind in streams.KINDS and isinstance(err, bool)


def _again(path: str, most: int) -> bytes:
    from pathlib import Path

    return read_bytes(Path(path), most)
