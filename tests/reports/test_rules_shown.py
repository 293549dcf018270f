"""What formats say of a rule: its address, its tags, counts; and that the project's address is the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from outcomes import finding, outcome

from preflight import REPOSITORY, RULE_PAGES
from preflight.engine import registry
from preflight.reports import render
from preflight.reports.rules import address, explanation, tags
from preflight.reports.statistics import counts
from preflight.reports.style import Look
from preflight.vocabulary.findings import Fix, Safety, Severity
from preflight.vocabulary.outcome import Outcome
from preflight.vocabulary.rule import Rule

ROOT = Path(__file__).parents[2]


class Added(Rule):
    """A rule of another distribution."""

    name = "added"
    summary = "It says where its page is"
    tags = ("power",)
    url = "https://example.org/added"


class Bare(Rule):
    name = "bare"
    summary = "It says nothing of a page"


@pytest.fixture
def installed(tmp_path: Path) -> Outcome:
    rules = {**registry.rules(), "added": Added, "bare": Bare}
    return replace(outcome(tmp_path), rules=rules, summaries={**registry.summaries(), "bare": Bare.summary})


def test_no_address_is_made_up(installed: Outcome) -> None:
    assert address(installed, "bare") == ""
    assert address(installed, "no-such-rule") == ""
    assert (explanation(installed, "no-such-rule"), tags(installed, "no-such-rule")) == ("", ())


def test_addresses_lead_to_pages_that_exist(installed: Outcome) -> None:
    for name in (*registry.rules(), *registry.OWN):
        page = address(installed, name).removeprefix(f"{RULE_PAGES}/")
        assert (ROOT / "docs" / "rules" / page).is_file(), name
    assert (address(installed, "added"), tags(installed, "added")) == ("https://example.org/added", ("power",))


def test_every_rule_says_what_it_is_about(installed: Outcome) -> None:
    for name, rule in registry.rules().items():
        assert rule.tags, name
        assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", tag) for tag in rule.tags), name


def test_each_finding_ends_with_the_address_of_its_rule(tmp_path: Path, installed: Outcome) -> None:
    [report] = outcome(tmp_path, (finding(), finding(rule="bare"))).reports
    first, second, _ = render("full", replace(installed, reports=(report,)), Look(detail="all")).split("\n\n")
    assert first.splitlines()[-1] == f"  = rule: {RULE_PAGES}/gpu-memory-exceeded.md"
    assert "= rule:" not in second


def test_the_address_of_the_project_stands_in_one_place_and_its_copies_agree() -> None:
    """The owner changes the constant; this test says which copies to change with it."""
    pages = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    files = ("README.md", *pages, "mkdocs.yml", "pyproject.toml")
    found = {name: re.findall(r"[\w./:-]*\bOWNER/preflight", (ROOT / name).read_text()) for name in files}
    owner = REPOSITORY.removeprefix("https://github.com/")
    for name, places in found.items():
        assert all(place.removeprefix("https://github.com/") == owner for place in places), name
    assert f'Repository = "{REPOSITORY}"' in (ROOT / "pyproject.toml").read_text()
    assert f"repo: {REPOSITORY}\n" in (ROOT / "README.md").read_text()
    assert f"repo: {REPOSITORY}\n" in (ROOT / "docs" / "how-to" / "pre-commit.md").read_text()
    assert f"repo_url: {REPOSITORY}\n" in (ROOT / "mkdocs.yml").read_text()
    assert f"uses: {owner}@" in (ROOT / "README.md").read_text()
    assert f"uses: {owner}@" in (ROOT / "docs" / "how-to" / "ci.md").read_text()


def test_counts_by_rule_the_most_frequent_first(tmp_path: Path) -> None:
    safe = finding(fix=Fix("write 8", Safety.safe, finding().fix.edits))
    warning = finding(rule="a-rule", severity=Severity.warning, fix=None)
    found = counts(outcome(tmp_path, (warning, finding(), safe)))
    assert [tuple(one.values()) for one in found] == [
        ("gpu-memory-exceeded", 2, 2, 0, 0, 1, 1),
        ("a-rule", 1, 0, 1, 0, 0, 0),
    ]
    assert counts(outcome(tmp_path)) == []
