"""The baseline: old findings are left out, new ones are not, entries that are gone are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from preflight.engine.baseline import Baseline, read, record
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Origin, Span


def finding(route: tuple[str | int, ...], start: int = 0, rule: str = "a-rule") -> Finding:
    return Finding(rule, Severity.error, Confidence.high, "m", Origin("conf/x.yaml", Span(start, start + 1), route))


def report(tmp_path: Path, *findings: Finding) -> Report:
    return Report(Project(tmp_path, Settings()), findings)


def test_nothing_new_after_recording_even_when_lines_move(tmp_path: Path) -> None:
    old = report(tmp_path, finding(("a", 0)), finding(("b",)))
    [rest] = record([old], Path("base.json"), tmp_path)
    assert rest.findings == ()
    baseline = Baseline.of("base.json", tmp_path)
    moved = report(tmp_path, finding(("a", 0), 100), finding(("b",), 200))
    assert baseline.new(moved).findings == ()
    assert baseline.new(moved).suppressed == 2
    assert baseline.notes() == ()


def test_one_more_of_the_same_is_new(tmp_path: Path) -> None:
    record([report(tmp_path, finding(("a",)))], Path("base.json"), tmp_path)
    twice = report(tmp_path, finding(("a",), 1), finding(("a",), 2))
    assert [f.origin.span.start for f in Baseline.of("base.json", tmp_path).new(twice).findings] == [2]


def test_entry_that_is_gone_is_told(tmp_path: Path) -> None:
    record([report(tmp_path, finding(("a",)), finding(("b",)))], Path("base.json"), tmp_path)
    baseline = Baseline.of("base.json", tmp_path)
    baseline.new(report(tmp_path, finding(("a",))))
    [note] = baseline.notes()
    assert "a-rule in conf/x.yaml at b" in note


def test_paths_are_relative_to_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    record([report(tmp_path, finding(("a",)))], Path("ci/base.json"), tmp_path)
    assert [path for _, path, _ in read(tmp_path / "ci" / "base.json")] == ["../conf/x.yaml"]
    assert Baseline.of("base.json", tmp_path / "ci").new(report(tmp_path, finding(("a",)))).findings == ()


def test_file_is_small_in_diffs_and_stable(tmp_path: Path) -> None:
    both = report(tmp_path, finding(("b",)), finding(("a",)), replace(finding(("a",)), rule="z"))
    record([both], Path("base.json"), tmp_path)
    text = (tmp_path / "base.json").read_text()
    record([replace(both, findings=both.findings[::-1])], Path("base.json"), tmp_path)
    assert (tmp_path / "base.json").read_text() == text
    assert len(text.splitlines()) == 5
    assert json.loads(text)["version"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "findings": []}', '{"version": 1, "findings": [1]}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "base.json").write_text(text)
    with pytest.raises(UsageError, match=r"base\.json"):
        read(tmp_path / "base.json")


def test_missing_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "base.json")
