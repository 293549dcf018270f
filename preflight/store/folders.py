"""A shared store: a folder with one file for each run, which many machines write and nobody changes.

SQLite's write-ahead log does not work on network file systems, and a file that is written once and renamed does. Who
reads brings new files into a file of this machine; a run's id makes that the same however often it is done.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable

from preflight.store.database import StoreError
from preflight.store.records import KeptRun, NotARun, of_plain, plain
from preflight.vocabulary.caches import regex
from preflight.vocabulary.words import plural

ENDING = ".jsonl"
LARGEST = 1 << 20
"""Bytes of one file; a run of a thousand ranks has a tenth of it."""
MOST_AT_ONCE = 20_000
"""Runs that one call brings in; the next one brings in more."""
_OWN = regex(r"[0-9A-Za-z_-]{1,64}\.jsonl")


def put(folder: str, runs: Iterable[KeptRun]) -> int:
    """Writes a file for each run that has none; how many were new. Raises StoreError."""
    new = 0
    try:
        os.makedirs(folder, exist_ok=True)
        _checked(folder)
        for run in runs:
            name = f"{run.id}{ENDING}"
            if not _OWN.fullmatch(name):
                raise StoreError(f"{run.id[:40]} is no id that can name a file")
            path, unfinished = os.path.join(folder, name), os.path.join(folder, f".{name}.{os.getpid()}")
            if os.path.lexists(path):
                continue
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o664)
            try:
                with open(handle, "w", encoding="utf-8") as file:
                    file.write(json.dumps(plain(run), sort_keys=True) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(unfinished, path)
            except OSError:
                os.unlink(unfinished)
                raise
            new += 1
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from error
    return new


def taken(folder: str, known: Collection[str], most: int | None = MOST_AT_ONCE) -> tuple[list[KeptRun], list[str]]:
    """The runs of a folder whose ids are not known, at most so many, and a line for each thing that is left out. Raises
    StoreError."""
    found: list[KeptRun] = []
    wrong = []
    names = _new_names(folder, known)
    for at, name in enumerate(names):
        if most is not None and len(found) >= most:
            wrong.append(f"{plural(len(names) - at, 'further file')} left for the next time")
            break
        try:
            run = of_plain(json.loads(_text(os.path.join(folder, name))))
            if run.id != name.removesuffix(ENDING):
                raise NotARun("it has another id than its name")
            found.append(run)
        except (NotARun, ValueError, RecursionError) as error:
            wrong.append(f"{name}: {str(error)[:200]}")
        except OSError as error:
            wrong.append(f"{name}: {error.strerror or error}")
    return found, wrong


def _new_names(folder: str, known: Collection[str]) -> list[str]:
    try:
        _checked(folder)
        names = sorted(name for name in os.listdir(folder) if _OWN.fullmatch(name))
    except FileNotFoundError:
        raise StoreError(f"{folder}: no run was recorded yet") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror or error}") from error
    seen = set(known)
    return [name for name in names if name.removesuffix(ENDING) not in seen]


def _text(path: str) -> str:
    """Raises OSError, NotARun."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotARun("it is not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise NotARun("it is too long")
    return data.decode("utf-8")


def _checked(folder: str) -> None:
    """A group may share the folder, and not everybody. Raises StoreError, OSError."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{folder} is not a folder")
    if hasattr(os, "getuid") and status.st_mode & 0o002:
        raise StoreError(f"{folder} can be written by everybody: chmod o-w {folder}")
