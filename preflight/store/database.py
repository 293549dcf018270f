"""The file of recorded runs: SQLite in the user's own data directory. Owner and rights are checked before it is opened.

The file holds no path, no name and no host: a job is kept as the fields that decide memory. A file that cannot be used
is an error in one line, which never ends a run.
"""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preflight.system.files import user_directory

if TYPE_CHECKING:
    import sqlite3

PLACE = "PREFLIGHT_STORE"
"""The path of the file, or of a shared folder; off: none is used."""
NAME = "runs.sqlite"
VERSION = 2
BUSY_MS = 5000
_BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside its own: it takes changes out of them (sqlite.org/tempfiles.html)."""

_SCHEMA = """
create table machine (
    id integer primary key, gpu text not null, memory_total integer, driver text not null, cuda text not null,
    torch text not null, alloc_conf text not null, unique (gpu, memory_total, driver, cuda, torch, alloc_conf));
create table job (hash text primary key, canonical_json text not null, preflight_version text not null);
create table run (
    id text primary key, job text references job (hash), machine integer references machine (id),
    world integer not null, rank_max integer not null, started text not null, outcome text not null,
    exit integer not null, oom_phase text,
    oom_request integer, steps integer not null, seconds real not null, source text not null);
create table peak (
    run text not null references run (id) on delete cascade, rank integer not null, phase text not null,
    tier text not null, bytes integer not null, law_low integer, law_expected integer, law_high integer,
    law_version text, primary key (run, rank, phase, tier));
create table host (
    run text not null references run (id) on delete cascade, what text not null, bytes integer not null,
    primary key (run, what));
create table about (name text primary key, value text not null);
create index run_job on run (job);
"""
_SINCE_2 = """
alter table run add column kind text not null default '';
alter table run add column data text not null default '';
"""
"""How hard the job is to estimate, and which data it reads: of runs of version 1 neither is known."""


class StoreError(Exception):
    """The file of runs cannot be used; the message is one line for the user."""


def place() -> str | None:
    """Where the file is or would be; None where none is used."""
    stated = os.environ.get(PLACE, "")
    if stated in ("off", "0"):
        return None
    if stated:
        return stated if os.path.isabs(stated) else None
    home = user_directory("data")
    return str(home / NAME) if home is not None else None


def exists() -> bool:
    """Whether there is a file of runs."""
    path = place()
    return path is not None and os.path.exists(path)


def stamp(path: str) -> object:
    """Something that changes when a run is added."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def shared() -> str | None:
    """The folder of a shared store; None: the store is a file."""
    path = place()
    return path if path is not None and (path.endswith("/") or os.path.isdir(path)) else None


def copy_of(folder: str) -> str:
    """The file on this machine that the runs of a shared folder are brought into. Raises StoreError."""
    home = user_directory("cache")
    if home is None:
        raise StoreError("no cache directory of the user is known, which the runs of a shared folder are brought into")
    return str(home / "shared" / f"{hashlib.sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:16]}.sqlite")


@contextmanager
def opened(write: bool = False) -> Iterator[sqlite3.Connection]:
    """The store, or this machine's copy of a shared one. With `write` it is made where there is none. Raises
    StoreError."""
    path = place()
    if path is None:
        raise StoreError(f"no file of runs is used ({PLACE} is off, or no absolute path names one)")
    folder = shared()
    if folder is not None:
        path, write = copy_of(folder), True
    _checked(path, write)
    import sqlite3

    try:
        connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    try:
        _prepared(connection, path, write)
        yield connection
        if write:
            connection.execute("pragma wal_checkpoint(truncate)")  # the file itself shows that something is new
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {_words(error)}") from error
    finally:
        connection.close()


def _words(error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return f"it is no file of runs or it is damaged; move it away, and a new one is made ({text})"
    return text


def _checked(path: str, write: bool) -> None:
    """Only the user may own and write the file, its folder, and what SQLite keeps beside it. Raises StoreError."""
    folder = os.path.dirname(path)
    try:
        if write:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.isdir(folder):
            _own(folder, os.stat(folder), "go-w")
        if write:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            os.close(handle)
        for one in (path, *(path + ending for ending in _BESIDE if os.path.lexists(path + ending))):
            status = os.lstat(one)
            if not stat.S_ISREG(status.st_mode):
                raise StoreError(f"{one} is not a regular file")
            _own(one, status, "600")
    except FileNotFoundError:
        raise StoreError(f"{path}: no run was recorded yet") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error.strerror}") from error


def _own(path: str, status: os.stat_result, mode: str) -> None:
    """Raises StoreError with the mode that the path should have."""
    if hasattr(os, "getuid"):  # Windows: rights are no part of a mode there
        if status.st_uid != os.getuid():
            raise StoreError(f"{path} belongs to another user")
        if status.st_mode & 0o022:
            raise StoreError(f"{path} can be written by others: chmod {mode} {path}")


def _prepared(connection: sqlite3.Connection, path: str, write: bool) -> None:
    """The schema, made or compared. Raises StoreError."""
    connection.execute(f"pragma busy_timeout = {BUSY_MS}")
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma foreign_keys = on")
    [version] = connection.execute("pragma user_version").fetchone()
    if version > VERSION:
        raise StoreError(f"{path} was made by a newer preflight (version {version}, this one knows {VERSION})")
    if version == VERSION:
        return
    if version == 1 and connection.execute("select 1 from sqlite_master where name = 'run'").fetchone():
        _brought_up(connection, path)
        return
    if not write or connection.execute("select count(*) from sqlite_master").fetchone()[0]:
        raise StoreError(f"{path} is no file of runs")
    connection.execute("pragma journal_mode = wal")
    connection.executescript(f"begin;{_SCHEMA}{_SINCE_2}pragma user_version = {VERSION};commit;")
    connection.execute("insert into about values ('source', ?)", (uuid.uuid4().hex,))


def _brought_up(connection: sqlite3.Connection, path: str) -> None:
    """A file of version 1 as one of today. Another process may have done it meanwhile. Raises StoreError."""
    try:
        connection.execute("begin immediate")
        [version] = connection.execute("pragma user_version").fetchone()
        for statement in _SINCE_2.split(";")[:-1] if version == 1 else ():
            connection.execute(statement)
        connection.execute(f"pragma user_version = {VERSION}")
        connection.execute("commit")
    except connection.OperationalError as error:
        raise StoreError(f"{path} is of an older version and cannot be brought up to date: {error}") from error
