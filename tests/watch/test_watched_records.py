"""Records of processes: lines that are broken or foreign are left out, and how a run ended is told by its signs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from preflight.engine.ask import job_of
from preflight.store.records import of_trial
from preflight.vocabulary.watched import WatchedError, WatchedHost, WatchedRank, WatchedRun
from preflight.watch.records import pids_of, ranks_of
from preflight.watch.text import summary

START = {"kind": "start", "rank": 1, "world": 2, "pid": 7, "torch": "2.7", "gpu": "A100", "gpu_memory": 100}
PEAKS = {
    "kind": "peaks", "phase": "validation", "steps": 60, "events": {"retries": 2, "ooms": 1}, "process": 9,
    "peaks": {"load": {}, "backward": {"allocated": 2**30, "reserved": 2**31}}, "floor": [2**30, 2**31, 60],
}  # fmt: skip


def written(folder: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "rank1-7.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize(
    "lines",
    [
        (), ("{",), ("[]",), (PEAKS,), ({**START, "rank": "x"},), ({"kind": 3},), ("\x00\xff",), ("[" * 100_000,),
        ({**START, "gpu_memory": "many"},),
    ],
)  # fmt: skip
def test_files_without_a_start_are_nothing(tmp_path: Path, lines: tuple[object, ...]) -> None:
    assert ranks_of(written(tmp_path, *lines)) == ()


@pytest.mark.parametrize("line", ['{"kind": "peaks", "pea', {**PEAKS, "peaks": [1]}, {**PEAKS, "steps": None}, "null"])
def test_a_broken_line_leaves_the_others(tmp_path: Path, line: object) -> None:
    [rank] = ranks_of(written(tmp_path, START, PEAKS, line))
    assert (rank.steps, rank.phase) == (60, "validation")


def test_a_whole_file(tmp_path: Path) -> None:
    error = {"kind": "error", "error": "OutOfMemoryError", "memory": "allocator", "tried": 5, "phase": "backward"}
    [rank] = ranks_of(written(tmp_path, START, PEAKS, error, {"kind": "end"}))
    assert (rank.rank, rank.world, rank.pid, rank.machine.gpu) == (1, 2, 7, "A100")
    assert rank.peak("reserved") == 2**31
    assert rank.peak("process") is None
    assert rank.error == WatchedError("OutOfMemoryError", "allocator", 5, "backward")
    assert rank.ended
    assert pids_of(tmp_path) == {7}


def test_trials_have_their_own_peaks(tmp_path: Path) -> None:
    tiers = {"forward": {"reserved": 5}}
    lines = [
        {"kind": "trial", "phase": "forward", "job": {"train.batch_size": 8}, "peaks": tiers},
        {"kind": "trial", "phase": "forward", "job": {"train.batch_size": 9}, "peaks": tiers, "memory": "allocator"},
        {"kind": "trial", "phase": "forward", "job": None, "peaks": tiers},
    ]
    [rank] = ranks_of(written(tmp_path, START, PEAKS, *lines))
    assert [(one.job, one.error is not None) for one in rank.trials] == [
        ({"train.batch_size": 8}, False), ({"train.batch_size": 9}, True),
    ]  # fmt: skip
    run = WatchedRun(0, 1.0, (rank,), WatchedHost(limit=5))
    kept = [of_trial(run, one, job_of(one.job), None) for one in rank.trials]
    assert [(one.outcome, one.peak("reserved"), one.host) for one in kept] == [("completed", 5, {}), ("oom", 5, {})]


def test_the_mark_has_the_last_phase(tmp_path: Path) -> None:
    (tmp_path / "rank1-7.phase").write_text(f"{'save':<12}{61:>20}{70:>20}{99:>20}")
    [rank] = ranks_of(written(tmp_path, START, PEAKS))
    assert (rank.phase, rank.steps) == ("save", 61)


RANK = WatchedRank(0)
OOM = replace(RANK, error=WatchedError("OutOfMemoryError", "allocator"))
WORKER = replace(RANK, error=WatchedError("RuntimeError", "worker"))
FULL = WatchedHost(limit=100, peak=99)


@pytest.mark.parametrize(
    ("run", "end"),
    [
        (WatchedRun(0, 1.0, (OOM,)), "completed"),
        (WatchedRun(1, 1.0, (RANK,)), "failed"),
        (WatchedRun(1, 1.0, (replace(RANK, error=WatchedError("ValueError")),)), "failed"),
        (WatchedRun(-15, 1.0, (RANK,), asked_to_end=15), "stopped"),
        (WatchedRun(-9, 1.0, (RANK,)), "unknown"),
        (WatchedRun(-9, 1.0, (RANK,), FULL), "killed"),
        (WatchedRun(137, 1.0, (), WatchedHost(total=100, least_available=1)), "killed"),
        (WatchedRun(1, 1.0, (), WatchedHost(kills=1)), "killed"),
        (WatchedRun(1, 1.0, (WORKER,)), "killed"),
        (WatchedRun(1, 1.0, (RANK, OOM)), "oom"),
        (WatchedRun(1, 1.0, (replace(RANK, ooms=1),)), "oom"),
        (WatchedRun(1, 1.0, (replace(RANK, ooms=1, handled=1),)), "failed"),
    ],
)
def test_how_it_ended(run: WatchedRun, end: str) -> None:
    assert run.end == end


def test_the_summary_says_what_is_unusual(tmp_path: Path) -> None:
    text = "\n".join(summary(WatchedRun(0, 1.0, ranks_of(written(tmp_path, START, PEAKS)), others=((99, 2**30),))))
    for words in ("60 steps on A100", "2 times", "grew from 1 GiB to 2 GiB", "99 (1 GiB)"):
        assert words in text
    [rank] = ranks_of(written(tmp_path, START, {**PEAKS, "gpus": 2}, {**PEAKS, "steps": float("inf")}))
    assert "it uses 2 GPUs, and the peaks are those of the fullest" in "\n".join(summary(WatchedRun(0, 1.0, (rank,))))
    assert "nothing was recorded" in "\n".join(summary(WatchedRun(0, 1.0)))
