"""The file of runs: what is refused, what is kept, and what never leaves this machine."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import pytest
import thorough
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from preflight.api import estimate, job_of
from preflight.store import database, exchange, folders
from preflight.store.database import StoreError
from preflight.store.exchange import carrier_of
from preflight.store.records import KeptRun, NotARun, canonical, hash_of, kept_run, of_plain, plain
from preflight.store.runs import add, bring_in, of_job, run_of, runs
from preflight.store.text import listed, shown
from preflight.system import kept_files
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.watched import WatchedError, WatchedHost, WatchedMachine, WatchedRank, WatchedRun

JOB = {"model.name": "gpt2", "train.batch_size": 8, "train.seq_len": 128}
RANK = WatchedRank(
    0, 1, 7, WatchedMachine("A100", 80 << 30, "2.7", "12.4"), {"backward": {"requested": 5, "allocated": 6}}, steps=3,
    process=11, error=WatchedError("OutOfMemoryError", "allocator", 99, "backward", "/home/ada/secret.py"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data" / "runs.sqlite"
    monkeypatch.setenv(database.PLACE, str(path))
    return path


def one(**fields: object) -> KeptRun:
    return kept_run(WatchedRun(1, 2.0, (RANK,), WatchedHost(100, 1, 50)), job_of({**JOB, **fields}), None)


def test_a_share_of_a_job_is_no_run_of_it() -> None:
    """One process on two GPUs: its peak says nothing of the job on one."""
    law = estimate(job_of(JOB)).device
    whole, shared = (kept_run(WatchedRun(0, 2.0, (replace(RANK, gpus=n),)), job_of(JOB), law) for n in (1, 2))
    assert (whole.job is not None, shared.job) == (True, None)
    assert (all(peak.law for peak in whole.peaks), any(peak.law for peak in shared.peaks)) == (True, False)


def test_a_store_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.PLACE, "off")
    assert not database.exists()
    with pytest.raises(StoreError, match="no file of runs"):
        add(one())


def test_a_relative_place_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.PLACE, "runs.sqlite")
    assert database.place() is None


def test_no_run_yet() -> None:
    with pytest.raises(StoreError, match="no run was recorded yet"):
        runs()


@pytest.mark.parametrize(
    "content", [b"hello, this is no database at all", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_a_file_that_is_damaged(store: Path, content: bytes) -> None:
    store.parent.mkdir()
    store.write_bytes(content)
    store.chmod(0o600)
    for use in (runs, lambda: add(one())):
        with pytest.raises(StoreError) as error:
            use()
        assert "\n" not in str(error.value)
    assert store.read_bytes() == content


def test_a_file_of_a_newer_version(store: Path) -> None:
    add(one())
    with sqlite3.connect(store) as connection:
        connection.execute("pragma user_version = 99")
    with pytest.raises(StoreError, match="newer preflight"):
        add(one())


def test_a_file_of_something_else(store: Path) -> None:
    store.parent.mkdir()
    with sqlite3.connect(store) as connection:
        connection.execute("create table other (x)")
    store.chmod(0o600)
    with pytest.raises(StoreError, match="no file of runs"):
        add(one())


def test_others_may_not_write_it(store: Path) -> None:
    add(one())
    store.chmod(0o666)
    with pytest.raises(StoreError, match="chmod 600"):
        runs()


def test_its_folder_may_be_made_by_another_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user whose groups may write what the user makes."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv(database.PLACE)
    before = os.umask(0o002)
    try:
        kept_files.submitted()
        assert add(one()) == 1
    finally:
        os.umask(before)


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_what_lies_beside_it_is_the_users_own(store: Path, ending: str) -> None:
    """SQLite would take the changes in it into the file."""
    add(one())
    beside = Path(f"{store}{ending}")
    beside.symlink_to(store)
    with pytest.raises(StoreError, match="not a regular file"):
        runs()
    beside.unlink()
    beside.touch()
    beside.chmod(0o660)
    with pytest.raises(StoreError, match=f"{ending} can be written by others"):
        runs()


def test_others_may_not_write_its_folder(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(one())
    store.parent.chmod(0o770)
    for use in (runs, lambda: add(one())):
        with pytest.raises(StoreError, match="chmod go-w"):
            use()
    store.parent.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(StoreError, match="data belongs to another user"):
        runs()


def test_a_link_is_not_followed(store: Path, tmp_path: Path) -> None:
    store.parent.mkdir()
    store.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        add(one())
    assert not (tmp_path / "elsewhere").exists()


def test_only_the_user_may_read_it(store: Path) -> None:
    add(one())
    assert store.stat().st_mode & 0o077 == 0


def test_no_name_no_path_no_host(store: Path) -> None:
    fields: dict[str, Any] = {
        "model.name": "quoz/private-model", "train.batch_size": 8, "model.path": "/home/quoz/model",
        "model.architecture": "quoznet", "model.config": {
            "_name_or_path": "/home/quoz/model", "auto_map": {"AutoModel": "quoz/code--model.Quoz"}, "layers": ["quoz"],
            "id2label": {"0": "Quoz"}, "label2id": {"Quoz": 0}, "hidden_act": "gelu", "/home/quoz": 1,
        },
        "model.kwargs": {"pretrained_cfg": {"file": "/home/quoz/w.pth"}},
        "train.peft.targets": r"quoz/.*\.(q|v)_proj", "train.peft.options": {"rank_pattern": {"/home/quoz": 1}},
    }  # fmt: skip
    assert "gelu" in str(canonical(job_of(fields)))
    add(kept_run(WatchedRun(1, 2.0, (RANK,)), job_of(fields), None))
    data = store.read_bytes() + json.dumps(plain(runs()[0])).encode()
    for word in ("quoz", "Quoz", "private", "secret", os.uname().nodename):  # no digest has these letters
        assert word.encode() not in data


def test_runs_come_back_as_they_were() -> None:
    run = one()
    assert add(run) == 1
    assert add(run, replace(run, id="other")) == 1
    found = run_of(run.id[:8])
    assert replace(found, source="", peaks=()) == replace(run, peaks=())
    assert set(found.peaks) == set(run.peaks)
    assert (found.outcome, found.oom_phase, found.oom_request) == ("oom", "backward", 99)
    assert len(of_job(run.job_hash or "")) == 2
    assert found.source == runs()[0].source != ""
    with pytest.raises(StoreError, match="no run has"):
        run_of("ffff0000")


def test_a_name_and_its_dimensions_are_one_job() -> None:
    named = canonical(job_of(JOB))
    assert "name" not in named["model"]
    stated = {
        **{f"model.{key}": value for key, value in named["model"].items()},
        "train.batch_size": 8,
        "train.seq_len": 128,
    }
    assert hash_of(canonical(job_of(stated))) == hash_of(named)
    assert hash_of(canonical(job_of({**JOB, "machine.gpu": "A100"}))) == hash_of(named)
    assert hash_of(canonical(job_of({**JOB, "train.batch_size": 9}))) != hash_of(named)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"outcome": "fine"}, {"world": -1}, {"id": ""}, {"id": "a\nb"}, {"steps": True}, {"job": 3},
        {"peaks": [{"rank": 0, "phase": "lunch", "tier": "allocated", "bytes": 1}]},
        {"peaks": [{"rank": 0, "phase": "save", "tier": "allocated", "bytes": 0}]},
        {"peaks": [{"rank": 0, "phase": "save", "tier": "allocated", "bytes": 1 << 60}]},
        {"peaks": [{"rank": 0, "phase": "save", "tier": "allocated", "bytes": 1, "law": [1, 2]}]},
        {"peaks": [{"rank": 0, "phase": "save", "tier": "allocated", "bytes": 1}] * 2},
        {"machine": None}, {"host": []}, {"outcome": ["oom"]},
        {"exit": math.inf}, {"exit": 1 << 70}, {"exit": "1"}, {"exit": True},
        {"seconds": math.nan}, {"seconds": math.inf}, {"seconds": -1}, {"seconds": 10**400}, {"seconds": "3"},
        {"job": {"model": 3}}, {"job": {"train": None}}, {"job": {"a": [[[[[[[[[]]]]]]]]]}}, {"job": {"a": "\x1b[2J"}},
        {"job": {"a" * 3000: 1}},
    ],
)  # fmt: skip
def test_foreign_lines_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(NotARun):
        of_plain({**plain(one()), **change})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=thorough.examples(100), suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(sorted(plain(one()))), JSON, max_size=3), JSON, JSON)
def test_whatever_a_line_has_it_is_a_run_or_left_out(change: dict[str, object], group: object, value: object) -> None:
    job = {"model": {"name": group, "config": group}, "train": {"batch_size": value}}
    line = {**plain(one()), "job": job, **change}
    try:
        run = of_plain(json.loads(json.dumps(line)))
    except NotARun:
        return
    assert [*shown(run), *listed([run]), plain(run)]
    assert add(replace(run, id=uuid.uuid4().hex)) == 1


def test_export_and_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(one(), one())
    path = tmp_path / "all.jsonl"
    carrier_of(str(path)).put(runs())
    path.write_text(path.read_text() + "{\n\n[]\n")
    monkeypatch.setenv(database.PLACE, str(tmp_path / "second.sqlite"))
    assert exchange.read_into(carrier_of(str(path)))[:2] == (2, 0)
    new, known, wrong = exchange.read_into(carrier_of(str(path)))
    assert (new, known, len(wrong)) == (0, 2, 2)
    with pytest.raises(UsageError, match="cannot be read"):
        exchange.read_into(carrier_of(str(tmp_path / "missing.jsonl")))


def test_an_export_follows_no_link(tmp_path: Path) -> None:
    """Neither one in the place of the file nor one that somebody laid for its unfinished part."""
    path, target = tmp_path / "all.jsonl", tmp_path / "target"
    target.write_text("kept")
    for link in (path, tmp_path / ".all.jsonl.unfinished"):
        link.symlink_to(target)
    add(one())
    carrier_of(str(path)).put(runs())
    assert (target.read_text(), path.is_symlink(), len(list(tmp_path.glob(".all*")))) == ("kept", False, 1)


def test_parquet_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(UsageError, match="Parquet needs"):
        carrier_of(str(tmp_path / "a.parquet")).put([])


def test_they_are_shown() -> None:
    add(one())
    [run] = runs()
    assert "gpt2 batch 8 x 128" in "\n".join(listed([run]))
    assert "memory ran out in backward" in "\n".join(shown(run))


# --- a shared folder -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared folder as the store, and a cache directory of this test alone."""
    made = tmp_path / "team"
    monkeypatch.setenv(database.PLACE, f"{made}/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def test_a_shared_folder_has_a_file_for_each_run(folder: Path) -> None:
    first, second = one(), one()
    assert add(first, second, first) == 2
    assert sorted(path.stem for path in folder.iterdir()) == sorted([first.id, second.id])
    assert {run.id for run in runs()} == {first.id, second.id}
    exchange.read_into(carrier_of(f"{folder}/"))  # from itself: nothing is new
    assert len(runs()) == 2
    third = replace(one(), source="another machine")
    (folder / f"{third.id}.jsonl").write_text(json.dumps(plain(third)))
    assert run_of(third.id).source == "another machine"


def test_what_is_wrong_in_a_shared_folder_is_told_and_left_out(folder: Path) -> None:
    good = one()
    add(good)
    (folder / "torn.jsonl").write_text("{")
    (folder / "other.jsonl").write_text(json.dumps(plain(one())))
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    (folder / "huge.jsonl").write_text("1" * ((1 << 20) + 1))
    os.mkfifo(folder / "pipe.jsonl")
    wrong = bring_in()
    assert sorted(line.partition(".")[0] for line in wrong) == ["huge", "link", "other", "pipe", "torn"]
    left_out: list[str] = []
    assert [run.id for run in runs(left_out=left_out)] == [good.id]
    assert left_out == wrong
    assert exchange.read_into(carrier_of(f"{folder}/")) == (0, 1, wrong)


def test_many_files_are_brought_in_by_and_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are no runs come first by name, and take the place of none. An import reads them all."""
    add(*(one() for _ in range(5)))
    for number in range(4):
        (folder / f"00000000{number}.jsonl").write_text("{")
    default = folders.taken.__defaults__
    monkeypatch.setattr(folders.taken, "__defaults__", (2,))
    assert (len(bring_in()), bring_in()[-1]) == (5, "1 further file left for the next time")
    assert (len(bring_in()), len(runs())) == (4, 5)
    assert default == (folders.MOST_AT_ONCE,)
    assert exchange.read_into(carrier_of(f"{folder}/"))[1] == 5


def test_a_folder_that_everybody_may_write_is_refused(folder: Path) -> None:
    add(one())
    folder.chmod(0o777)
    for use in (runs, lambda: add(one())):
        with pytest.raises(StoreError, match="chmod o-w"):
            use()


def test_one_source_that_sends_many_does_not_push_out_the_others(store: Path) -> None:
    others = [replace(one(), source=f"s{number}") for number in range(3)]
    add(*others, *(replace(one(), source="flood") for _ in range(40)))
    assert {run.source for run in runs(8)} == {"s0", "s1", "s2", "flood"}


def test_a_wrong_clock_does_not_hide_what_was_added_last(store: Path) -> None:
    add(*(replace(one(), started=f"20{year}-01-01T00:00:00Z") for year in range(25, 40)))
    late = replace(one(), started="1970-01-01T00:00:00Z")
    add(late)
    assert late.id in {run.id for run in runs(3)}


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_store_of_the_first_version_is_brought_up_to_date(store: Path) -> None:
    store.parent.mkdir()
    with sqlite3.connect(store) as connection:
        connection.executescript(database._SCHEMA + "pragma user_version = 1;")
    store.chmod(0o600)
    assert runs() == []
    run = replace(one(), kind="steady", data="ab")
    add(run)
    assert (runs()[0].kind, runs()[0].data) == ("steady", "ab")
