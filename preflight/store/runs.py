"""Recorded runs: added, listed, looked up by job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from preflight import __version__
from preflight.store import database, folders
from preflight.store.database import StoreError, opened
from preflight.store.records import KeptRun, Peak
from preflight.vocabulary.watched import WatchedMachine

_COLUMNS = """run.id, run.job, world, rank_max, started, outcome, exit, oom_phase, oom_request, steps, seconds, source,
    kind, data"""


def add(*runs: KeptRun) -> int:
    """Keeps runs; how many were new. A run that is there already stays as it is. Raises StoreError."""
    folder = database.shared()
    return _kept(runs) if folder is None else folders.put(folder, runs)


def bring_in() -> list[str]:
    """Brings what is new in a shared folder into this machine's copy of it; what is wrong with its files. Raises
    StoreError."""
    folder = database.shared()
    if folder is None:
        return []
    with opened() as connection:
        known = {name for (name,) in connection.execute("select id from run")}
    found, wrong = folders.taken(folder, known)
    if found:
        _kept(found)
    return wrong


@contextmanager
def _reading(left_out: list[str] | None = None) -> Iterator[sqlite3.Connection]:
    """The store with what others added to it. `left_out`: takes what is wrong with their files. Raises StoreError."""
    wrong = bring_in()
    if left_out is not None:
        left_out += wrong
    with opened() as connection:
        yield connection


def _kept(runs: Iterable[KeptRun]) -> int:
    new = 0
    with opened(write=True) as connection:
        own = connection.execute("select value from about where name = 'source'").fetchone()
        connection.execute("begin immediate")
        for run in runs:
            new += _added(connection, run, own[0] if own else "")
        connection.execute("commit")
    return new


def _added(connection: sqlite3.Connection, run: KeptRun, own: str) -> int:
    if connection.execute("select 1 from run where id = ?", (run.id,)).fetchone():
        return 0
    if run.job is not None:
        text = json.dumps(run.job, sort_keys=True, default=str)
        connection.execute("insert or ignore into job values (?, ?, ?)", (run.job_hash, text, __version__))
    of, total = run.machine, run.machine.gpu_memory or 0
    machine = (of.gpu, total, of.driver, of.cuda, of.torch, of.alloc_conf)
    connection.execute(
        "insert or ignore into machine (gpu, memory_total, driver, cuda, torch, alloc_conf) values (?, ?, ?, ?, ?, ?)",
        machine,
    )
    [number] = connection.execute(
        "select id from machine where gpu = ? and memory_total = ? and driver = ? and cuda = ? and torch = ? "
        "and alloc_conf = ?", machine,
    ).fetchone()  # fmt: skip
    connection.execute(
        "insert into run values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.id, run.job_hash, number, run.world, run.rank_max, run.started, run.outcome, run.exit, run.oom_phase,
         run.oom_request, run.steps, run.seconds, run.source or own, run.kind, run.data),
    )  # fmt: skip
    connection.executemany(
        "insert into peak values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(run.id, one.rank, one.phase, one.tier, one.bytes, *(one.law or (None, None, None)), run.law_version)
         for one in run.peaks],
    )  # fmt: skip
    connection.executemany("insert into host values (?, ?, ?)", [(run.id, *item) for item in run.host.items()])
    return 1


def runs(limit: int = 1000, left_out: list[str] | None = None) -> list[KeptRun]:
    """The newest runs, newest first. `left_out`: takes what is wrong with files of others. Raises StoreError.

    They are chosen by when they were added, since clocks of machines may be wrong, and in turn from each source, so
    that one that sends many does not push out the others.
    """
    with _reading(left_out) as connection:
        rows = connection.execute(
            f"select {_COLUMNS}, machine from run where rowid in (select rowid from run order by row_number() over "
            "(partition by source order by rowid desc), rowid desc limit ?) order by started desc, id", (limit,),
        )  # fmt: skip
        return list(_made(connection, rows.fetchall()))


def run_of(beginning: str) -> KeptRun:
    """The run whose id begins so. Raises StoreError if there is none, or several."""
    if not beginning.isalnum():
        raise StoreError(f"{beginning} is no id of a run")
    with _reading() as connection:
        rows = connection.execute(
            f"select {_COLUMNS}, machine from run where id like ? || '%' limit 2", (beginning,)
        ).fetchall()
        if len(rows) != 1:
            raise StoreError(f"{'several runs have' if rows else 'no run has'} an id that begins with {beginning}")
        return next(_made(connection, rows))


def of_job(digest: str) -> list[KeptRun]:
    """All runs of a job, newest first. Raises StoreError."""
    with _reading() as connection:
        rows = connection.execute(
            f"select {_COLUMNS}, machine from run where job = ? order by started desc limit 200", (digest,)
        )
        return list(_made(connection, rows.fetchall()))


def _made(connection: sqlite3.Connection, rows: Iterable[tuple[object, ...]]) -> Iterator[KeptRun]:
    for row in rows:
        (
            name,
            job,
            world,
            rank_max,
            started,
            outcome,
            status,
            phase,
            request,
            steps,
            seconds,
            source,
            kind,
            data,
            number,
        ) = row
        found = connection.execute("select canonical_json from job where hash = ?", (job,)).fetchone()
        of = connection.execute(
            "select gpu, memory_total, torch, cuda, driver, alloc_conf from machine where id = ?", (number,)
        ).fetchone()
        peaks = connection.execute(
            "select rank, phase, tier, bytes, law_low, law_expected, law_high, law_version from peak where run = ? "
            "order by rank, phase, tier", (name,),
        ).fetchall()  # fmt: skip
        host = dict(connection.execute("select what, bytes from host where run = ?", (name,)).fetchall())
        machine = WatchedMachine(of[0], of[1] or None, *of[2:]) if of else WatchedMachine()
        yield KeptRun(
            str(name), machine, json.loads(found[0]) if found else None, world, rank_max, started, outcome, status,  # type: ignore[arg-type]
            phase, request, steps, seconds,  # type: ignore[arg-type]
            tuple(_peak(one) for one in peaks), host,
            next((one[7] for one in peaks if one[7]), ""), str(source), str(kind), str(data),
        )  # fmt: skip


def _peak(row: tuple[int, str, str, int, int | None, int | None, int | None, str]) -> Peak:
    rank, phase, tier, size, low, expected, high, _ = row
    whole = low is not None and expected is not None and high is not None
    return Peak(rank, phase, tier, size, (low, expected, high) if whole else None)  # type: ignore[arg-type]
