"""What a rule's own builder of findings fills in."""

from __future__ import annotations

import pytest
from cases import GIB, Device, Host, case, origin, spread

from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.findings import Confidence, Severity
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.rule import Rule


class Large(Rule):
    name = "large"
    summary = "Large"


@pytest.mark.parametrize(
    ("interval", "severity", "confidence"),
    [
        (Interval(1, 2, 3), Severity.warning, Confidence.low),
        (Interval(1, 2, 9), Severity.warning, Confidence.low),
        (Interval(1, 8, 9), Severity.error, Confidence.medium),
        (Interval(7, 8, 9), Severity.error, Confidence.high),
    ],
    ids=["fits", "only the high end is above", "the middle is above", "all of it is above"],
)
def test_the_interval_decides_how_bad_it_is(interval: Interval, severity: Severity, confidence: Confidence) -> None:
    found = Large().finding("m", None, interval=interval, capacity=5)
    assert (found.severity, found.confidence) == (severity, confidence)


def test_what_is_said_goes_before_what_the_estimate_says() -> None:
    estimates = case({"train.batch_size": 32, "train.seq_len": 1024}, device=Device()).estimates
    found = Large().finding("m", origin(1), Severity.info, estimate=estimates.device, capacity=40 * GIB, side="host")
    assert (found.rule, found.severity, found.capacity, found.side) == ("large", Severity.info, 40 * GIB, "host")
    assert found.interval == (spread(34 * GIB).low, 34 * GIB, spread(34 * GIB).high)


def test_a_finding_has_the_evidence_of_its_estimate() -> None:
    written = {"train.batch_size": 64, "data.workers": 16, "data.sample_bytes": 8 * 2**20}
    one = case(written, host=Host(limit=8 * GIB))
    found = Large().finding("m", None, estimate=one.estimates.host)
    assert (found.severity, found.side, found.capacity) == (Severity.error, "host", 8 * GIB)
    assert [(part.name, part.bytes) for part in found.parts] == [("base", GIB), ("workers", 16 * GIB)]


def test_without_evidence_nothing_is_said_of_memory() -> None:
    found = Large().finding("m", None, Severity.error)
    assert (found.confidence, found.parts, found.interval, found.side) == (Confidence.high, (), None, "")


def test_problems_of_the_readers_are_those_of_the_rules_name() -> None:
    problems = (Problem("large", "mine", origin(1)), Problem("other", "not mine", origin(2)))
    assert [found.message for found in Large().from_problems(case({}, problems=problems))] == ["mine"]
