"""Ignores: which comments are ones, what they take out, which do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine.suppress import ignores, inline, per_file
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import Source, splice
from preflight.vocabulary.values import Origin, Span

KNOWN = frozenset({"a-rule", "b-rule", "unused-ignore"})


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
