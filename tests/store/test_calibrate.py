"""What recorded runs change in an estimate: never silently, never narrower than it may be, and the right share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from preflight import __version__
from preflight.store.calibrate import DRIFT, Learnt, calibrated, newest
from preflight.store.records import KeptRun, Peak
from preflight.store.votes import Vote, Votes, ends, votes_of
from preflight.vocabulary.estimates import Coverage, DeviceEstimate, Interval
from preflight.vocabulary.watched import WatchedMachine

GIB = 2**30
LAW = DeviceEstimate(
    Interval(9 * GIB, 9 * GIB, 9 * GIB), Interval(9 * GIB, 10 * GIB, 11 * GIB), Interval(10 * GIB, 11 * GIB, 12 * GIB),
    Interval(11 * GIB, 12 * GIB, 14 * GIB), "backward", "",
    {"weights": 4 * GIB, "activations": 6 * GIB, "allocator": GIB, "context": GIB}, {"backward": 12 * GIB}, None,
    24 * GIB, "fits",
)  # fmt: skip


def run(
    number: int, measured: float, outcome: str = "completed", process: float = 0, source: str = "a", kind: str = "",
    torch: str = "2.7.1", **job: Any,
) -> KeptRun:  # fmt: skip
    """A run that took `measured` of what the law said: 10 GiB."""
    size = round(measured * 10 * GIB)
    law = (9 * GIB, 10 * GIB, 11 * GIB)
    peaks = [Peak(0, "backward", tier, size, law) for tier in ("allocated", "reserved")]
    if process:
        peaks.append(Peak(0, "all", "process", size + round(process * GIB)))
    return KeptRun(
        f"r{number}", WatchedMachine("A10", 24 * GIB, torch), {"model": {"n": number}, **job}, 1, 0,
        "2026-11-20T00:00:00Z", outcome, 0, peaks=tuple(peaks), source=source, kind=kind,
    )  # fmt: skip


def ratios(runs: list[KeptRun] | tuple[KeptRun, ...], kind: str = "") -> list[float]:
    return [vote.ratio for vote in votes_of(runs, kind, __version__).votes]


def test_nothing_is_learnt_from_nothing() -> None:
    assert calibrated(LAW, Learnt()) is LAW


@pytest.mark.parametrize("number", [1, 18])
def test_too_few_jobs_change_nothing(number: int) -> None:
    assert calibrated(LAW, Learnt((), tuple(run(one, 1.2) for one in range(number)))) is LAW


def test_many_trials_of_one_sweep_are_one_vote() -> None:
    flood = tuple(replace(run(0, 1.9), id=str(one)) for one in range(1000))
    assert votes_of(flood, "", __version__).jobs == 1
    assert calibrated(LAW, Learnt((), flood)) is LAW


@pytest.mark.parametrize("measured", [0.01, 0.29, 2.41, 3.1, 50])
def test_what_is_not_plausible_does_not_count(measured: float) -> None:
    assert ratios([run(0, measured)]) == []


@pytest.mark.parametrize("outcome", ["failed", "stopped", "unknown"])
def test_runs_that_ended_otherwise_do_not_count(outcome: str) -> None:
    assert ratios([run(0, 1.1, outcome)]) == []


def test_a_lower_bound_stays_one() -> None:
    bound = replace(LAW, lower_bound=True)
    assert calibrated(bound, Learnt((), tuple(run(one, 1.2, process=2) for one in range(30)))) is bound


def test_a_run_that_died_counts_as_at_least_what_it_had_and_asked_for() -> None:
    died = replace(run(0, 0.9, "oom"), oom_request=3 * GIB)
    assert votes_of([died], "", __version__).votes == (Vote(pytest.approx(1.2), 1.0, True),)


def test_jobs_move_the_scale_and_say_so() -> None:
    found = calibrated(LAW, Learnt((), tuple(run(one, 1.2) for one in range(30))))
    assert 1.1 * 10 * GIB < found.allocated.expected < 1.2 * 10 * GIB  # drawn towards the shipped figures
    assert found.allocated.high >= round(1.1 * 11 * GIB)
    assert found.allocated.low <= found.allocated.expected <= found.allocated.high
    assert sum(found.breakdown.values()) == found.process.expected
    assert found.recorded == (
        "calibrated by 30 jobs on this GPU (30 runs, newest 2026-11-20): 1.15 of the law's figure",
    )


def test_contexts_of_this_machine_replace_the_published_one() -> None:
    two = Learnt((), tuple(run(one, 1.0, process=2) for one in range(2)))
    assert calibrated(LAW, two) is LAW
    found = calibrated(LAW, Learnt((), tuple(run(one, 1.0, process=1.5 + one / 2) for one in range(3))))
    assert found.process.expected == 13 * GIB
    assert found.process == Interval(10 * GIB + 3 * GIB // 2, 13 * GIB, 12 * GIB + 5 * GIB // 2)
    assert sum(found.breakdown.values()) == found.process.expected
    assert "3 runs" in found.recorded[0]


def test_the_same_job_has_its_measured_figures() -> None:
    found = calibrated(LAW, Learnt((run(0, 1.5), run(1, 1.3), run(2, 1.4)), ()))
    assert found.reserved == Interval(13 * GIB, 14 * GIB, 15 * GIB)
    assert found.process.expected == 15 * GIB
    assert sum(found.breakdown.values()) == found.process.expected
    assert "ran before: peak 15 GiB on this GPU (3 runs" in found.recorded[0]
    over = calibrated(replace(LAW, capacity=14 * GIB), Learnt((run(0, 1.5),), ()))
    assert over.verdict == "exceeds"


def test_where_lengths_differ_a_past_peak_only_raises() -> None:
    found = calibrated(LAW, Learnt((run(0, 0.5),), ()), dynamic=True)
    assert found.process.expected == LAW.process.expected
    assert found.process.high == LAW.process.high
    assert "least that it needs" in found.recorded[0]
    raised = calibrated(LAW, Learnt((run(0, 1.5),), ()), dynamic=True)
    assert raised.process.expected > LAW.process.expected


def test_a_job_that_died_before_is_at_risk() -> None:
    found = calibrated(LAW, Learnt((run(0, 1.0, "oom"),), ()))
    assert found.verdict == "at-risk"
    assert "ran out of GPU memory before" in found.recorded[0]


@pytest.mark.parametrize(("count", "found"), [(18, False), (19, True), (100, True)])
def test_how_many_jobs_an_interval_needs(count: int, found: bool) -> None:
    votes = tuple(Vote(1 + number / 100) for number in range(count))
    assert (ends(Votes(votes, count)) is not None) is found


def test_a_job_of_another_kind_changes_nothing() -> None:
    """However many runs of a kind there are, the interval of another stays as it was."""
    steady = tuple(run(number, 1.1, kind="steady") for number in range(30))
    law = replace(LAW, coverage=Coverage("steady, versions stated", 9, 9, 0.9))
    alone = calibrated(law, Learnt((), steady))
    assert alone != law
    sharded = tuple(run(100 + number, 2.0, kind="sharded") for number in range(60))
    assert calibrated(law, Learnt((), (*steady, *sharded))) == alone
    assert calibrated(law, Learnt((), sharded)) is law


def test_laws_of_another_release_say_nothing() -> None:
    old = tuple(replace(run(number, 1.2), law_version="0.0.9") for number in range(30))
    assert calibrated(LAW, Learnt((), old)) is LAW


def test_runs_of_another_torch_widen() -> None:
    same = tuple(run(number, 1.2) for number in range(30))
    narrow = calibrated(LAW, Learnt((), same, "2.7.0"))
    wide = calibrated(LAW, Learnt((), same, "2.9.0"))
    assert wide.allocated.expected == narrow.allocated.expected
    assert wide.allocated.low < narrow.allocated.low
    assert "30 of them with another torch" in wide.recorded[0]
    assert "another torch" not in narrow.recorded[0]


def test_a_context_is_of_one_set_of_libraries() -> None:
    new = [run(number, 1.0, process=2, torch="2.9.0") for number in range(3)]
    old = [run(number, 1.0, process=4, torch="2.7.1") for number in range(9)]
    assert calibrated(LAW, Learnt((), (*new, *old))).process.expected == 13 * GIB
    assert calibrated(LAW, Learnt((), (*new, *old), "2.7.0")).process.expected == 15 * GIB
    assert calibrated(LAW, Learnt((), (*new[:2], *old))).process.expected == 15 * GIB


def test_a_clock_that_is_wrong_is_not_the_newest() -> None:
    clocks = [replace(run(0, 1.0), started=day) for day in ("2999-01-01", "1970-01-01", "2026-02-03", "zebra")]
    assert newest(clocks) == "2026-02-03"
    assert newest(clocks[:2]) == "on an unknown day"


# --- simulated stores: law times a lognormal residual -----------------------------------------------------------------

STORES = 400


def covered(
    made: Callable[[random.Random, int], Vote], shift: float = 0.05, spread: float = 0.1
) -> tuple[float, float]:
    """The shares of jobs to come that are between the ends, and below the high one, over stores that have ends."""
    chance = random.Random(0)
    inside = below = count = 0
    for _ in range(STORES):
        jobs = chance.randint(19, 60)
        found = ends(Votes(tuple(made(chance, number) for number in range(jobs)), jobs))
        if found is not None:
            count += 1
            to_come = chance.lognormvariate(0.05, 0.1)
            inside += found[0] <= to_come <= found[2]
            below += to_come <= found[2]
    assert count > STORES / 2
    return inside / count, below / count


def test_the_interval_holds_what_it_says() -> None:
    inside, below = covered(lambda chance, _: Vote(chance.lognormvariate(0.05, 0.1)))
    assert 0.87 <= inside <= 0.97
    assert 0.93 <= below <= 0.995


def test_jobs_that_ran_out_of_memory_do_not_make_it_too_low() -> None:
    """A third of the jobs die at a bound of their own. Left out, or taken as what they reached, the high end is low."""

    def seen(chance: random.Random) -> tuple[float, bool]:
        need, card = chance.lognormvariate(0.05, 0.1), chance.lognormvariate(0.12, 0.12)
        return min(need, card), need > card

    def vote(chance: random.Random, _: int) -> Vote:
        ratio, died = seen(chance)
        return Vote(ratio, censored=died)

    inside, below = covered(vote)
    assert inside >= 0.87
    assert below >= 0.93
    _, taken_as_reached = covered(lambda chance, _: Vote(seen(chance)[0]))
    assert taken_as_reached < below - 0.02


def test_a_source_that_sends_a_thousand_rows_has_one_vote() -> None:
    """Each store has an own share of honest jobs, and one source that sends a thousand rows of one job."""
    chance = random.Random(1)
    inside = 0
    for store in range(40):
        honest = [run(number, chance.lognormvariate(0, 0.1), source=f"s{number}") for number in range(30)]
        template = run(999, 1.9, source="flood")
        flood = [replace(template, id=f"f{number}") for number in range(1000 if store < 2 else 50)]
        found = votes_of([*flood, *honest], "", __version__)
        assert found.jobs == 31
        limits = ends(found)
        assert limits is not None
        inside += limits[0] <= chance.lognormvariate(0, 0.1) <= limits[2]
    assert inside / 40 >= 0.85


def test_a_release_that_drifts_is_held_by_the_wider_ends() -> None:
    """Half of the runs are of an older torch, whose jobs took 4 % less."""
    chance = random.Random(2)
    inside = 0
    for _ in range(STORES):
        votes = [Vote(chance.lognormvariate(0.05 - 0.04 * (number % 2), 0.08)) for number in range(40)]
        found = ends(Votes(tuple(votes), 40))
        assert found is not None
        inside += found[0] * (1 - DRIFT) <= chance.lognormvariate(0.05, 0.08) <= found[2] * (1 + DRIFT)
    assert inside / STORES >= 0.9
