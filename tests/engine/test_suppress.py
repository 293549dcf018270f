"""Ignores: which comments are ones, what they take out, which do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine.suppress import ignores, inline, per_file
from preflight.system import observed
from preflight.vocabulary.findings import Confidence, Finding, Safety, Severity
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import Source, splice
from preflight.vocabulary.values import Origin, Span

KNOWN = frozenset({"a-rule", "b-rule", "unused-ignore", "expired-ignore"})


@pytest.fixture(autouse=True)
def the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "today", lambda: "2026-07-01")


def finding(text: str, part: str, rule: str = "a-rule", path: str = "x.yaml") -> Finding:
    at = text.index(part)
    return Finding(rule, Severity.error, Confidence.high, "m", Origin(path, Span(at, at + len(part))))


def left(tmp_path: Path, text: str, *findings: Finding, path: str = "x.yaml", enabled: frozenset[str] = KNOWN) -> list:
    (tmp_path / path).write_bytes(text.encode())
    kept, _ = inline(findings, Project(tmp_path, Settings()), [path], enabled, KNOWN)
    return kept


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("x.yaml", "a: 1  # preflight ignore[a-rule]\n"),
        ("x.yaml", 'a: "# preflight: ignore[a-rule]"\n'),
        ("x.yaml", "a: 'it''s # preflight: ignore[a-rule]'\n"),
        ("x.yaml", "a: x# preflight: ignore[a-rule]\n"),
        ("x.py", 'a = "# preflight: ignore[a-rule]"\n'),
        ("x.py", '"""\n# preflight: ignore[a-rule]\n"""\na = 1\n'),
        ("x.sh", "echo '# preflight: ignore[a-rule]'\n"),
    ],
)
def test_not_an_ignore(path: str, text: str) -> None:
    assert ignores(Source(path, text)) == []


@pytest.mark.parametrize(
    ("path", "text", "rules", "line"),
    [
        ("x.yaml", "a: 1  # preflight: ignore[a-rule] tested on the cluster\n", ("a-rule",), 1),
        ("x.yaml", "a: 1 # preflight:ignore[a-rule, b-rule]\n", ("a-rule", "b-rule"), 1),
        ("x.yaml", "# preflight: ignore[a-rule]\n\n# more\na: 1\n", ("a-rule",), 4),
        ("x.yaml", "a: it's  # preflight: ignore[a-rule]\n", ("a-rule",), 1),
        ("x.yaml", "# preflight: ignore-file[a-rule]\na: 1\n", ("a-rule",), None),
        ("x.sh", "#!/bin/bash\n# preflight: ignore[a-rule]\n#SBATCH --mem=1G\n", ("a-rule",), 3),
        ("x.py", "a = 1  # preflight: ignore[a-rule]\n", ("a-rule",), 1),
        ("x.yaml", "a: 1  # preflight: ignore\n", (), 1),
    ],
)
def test_ignore(path: str, text: str, rules: tuple[str, ...], line: int | None) -> None:
    [found] = ignores(Source(path, text))
    assert (found.rules, found.line) == (rules, line)


def test_findings_elsewhere_or_of_other_rules_stay(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule]\nb: 2\n"
    here, below, other = finding(text, "1"), finding(text, "2"), finding(text, "1", "b-rule")
    assert left(tmp_path, text, here, below, other) == [below, other]


def test_whole_file(tmp_path: Path) -> None:
    text = "# preflight: ignore-file[a-rule]\na: 1\nb: 2\n"
    assert left(tmp_path, text, finding(text, "1"), finding(text, "2")) == []


def test_unused_ignore_is_reported_and_can_be_removed(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule] why\r\nb: 2\r\n"
    [found] = left(tmp_path, text)
    assert found.rule == "unused-ignore"
    assert found.severity is Severity.warning
    assert splice(text, found.fix.edits) == "a: 1\r\nb: 2\r\n"


def test_lone_unused_ignore_goes_with_its_line(tmp_path: Path) -> None:
    text = "a: 1\n  # preflight: ignore[a-rule]\nb: 2"
    [found] = left(tmp_path, text)
    assert splice(text, found.fix.edits) == "a: 1\nb: 2"


def test_only_the_idle_name_goes(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule, b-rule] why\n"
    [found] = left(tmp_path, text, finding(text, "1"))
    assert splice(text, found.fix.edits) == "a: 1  # preflight: ignore[a-rule] why\n"


def test_ignore_of_a_rule_that_did_not_run_is_not_called_unused(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule]\n"
    assert left(tmp_path, text, enabled=frozenset({"b-rule", "unused-ignore"})) == []


@pytest.mark.parametrize(
    ("comment", "words"),
    [("ignore[no-such]", "there is no rule no-such"), ("ignore", "names no rule"), ("ignore[]", "names no rule")],
)
def test_malformed_ignores_say_so(tmp_path: Path, comment: str, words: str) -> None:
    [found] = left(tmp_path, f"a: 1  # preflight: {comment}\n")
    assert words in found.message


def test_per_file_globs() -> None:
    one, two = finding("a: 1", "1", path="old/x.yaml"), finding("a: 1", "1", path="new/x.yaml")
    assert per_file([one, two], {"old/**": ["a-rule"], "new/*": ["b-rule"]}) == ([two], 1)
    assert per_file([one, two], {"*.yaml": ["all"]}) == ([], 2)


# --- dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "until", "reason"),
    [
        ("", "", ""),
        (" until the cluster is there", "", "until the cluster is there"),
        (" until torch 2.9", "", "until torch 2.9"),
        (" until 2 nodes are back", "", "until 2 nodes are back"),
        (" runs until 2026-12-31", "", "runs until 2026-12-31"),
        (" the paper's value", "", "the paper's value"),
        (" until 2026-12-31", "2026-12-31", ""),
        (" until 2026-12-31: the paper's value: 64", "2026-12-31", "the paper's value: 64"),
        ("  until\t2026-12-31 : why", "2026-12-31", "why"),
        (" until 2026-12-31 why", "2026-12-31", "why"),
    ],
)
def test_date_and_reason(rest: str, until: str, reason: str) -> None:
    [found] = ignores(Source("x.yaml", f"a: 1  # preflight: ignore[a-rule]{rest}\n"))
    assert (found.until, found.reason, found.rules, found.dated) == (until, reason, ("a-rule",), True)


@pytest.mark.parametrize("day", ["2026-13-01", "2026-02-30", "31.12.2026", "12/31/2026", "2026-1-1", "2026-12-3l"])
def test_date_that_is_none_ignores_nothing_and_says_so(tmp_path: Path, day: str) -> None:
    text = f"a: 1  # preflight: ignore[a-rule] until {day}: why\n"
    kept = left(tmp_path, text, finding(text, "1"))
    assert [one.rule for one in kept] == ["a-rule", "unused-ignore"]
    assert f"its date {day} is none" in kept[1].message


@pytest.mark.parametrize("day", ["2026-07-01", "2026-07-02", "2027-01-01"])
def test_it_ignores_until_the_end_of_its_day(tmp_path: Path, day: str) -> None:
    text = f"a: 1  # preflight: ignore[a-rule] until {day}: why\n"
    assert left(tmp_path, text, finding(text, "1")) == []


def test_after_its_day_the_finding_is_back_and_the_comment_is_named(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule] until 2026-06-30: new nodes come in June\nb: 2\n"
    here = finding(text, "1")
    kept = left(tmp_path, text, here)
    assert kept[0] == here
    assert (kept[1].rule, kept[1].severity) == ("expired-ignore", Severity.warning)
    assert kept[1].message == "this ignore of a-rule ended on 2026-06-30 (new nodes come in June)"
    assert kept[1].fix.safety is Safety.unsafe  # somebody has to read it: it may need a later date
    assert splice(text, kept[1].fix.edits) == "a: 1\nb: 2\n"


def test_expired_is_not_called_unused_too(tmp_path: Path) -> None:
    [found] = left(tmp_path, "# preflight: ignore-file[a-rule] until 2026-01-01\na: 1\n")
    assert found.rule == "expired-ignore"


def test_expired_ignores_nothing_where_its_rule_is_off(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule] until 2026-06-30\n"
    here = finding(text, "1")
    assert left(tmp_path, text, here, enabled=frozenset({"a-rule", "unused-ignore"})) == [here]


def test_only_the_idle_name_goes_and_the_date_stays(tmp_path: Path) -> None:
    text = "a: 1  # preflight: ignore[a-rule, b-rule] until 2026-12-31: why\n"
    [found] = left(tmp_path, text, finding(text, "1"))
    assert splice(text, found.fix.edits) == "a: 1  # preflight: ignore[a-rule] until 2026-12-31: why\n"
