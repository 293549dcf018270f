"""Every example of every rule, through the whole engine: what must trigger, what must not, the text after a fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine import registry
from preflight.engine.files import Batch
from preflight.reports import render
from preflight.reports.short import MOST_LINES, short
from preflight.reports.streams import clean
from preflight.reports.style import Look
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.rule import Example, Rule
from preflight.vocabulary.settings import Settings


def examples() -> Iterator[object]:
    for name, rule in registry.rules().items():
        for example in rule.examples:
            yield pytest.param(rule, example, id=f"{name}: {example.title}")


def files(example: Example) -> dict[str, str]:
    return {name: textwrap.dedent(text).lstrip("\n") for name, text in example.files.items()}


def start(example: Example, root: Path) -> tuple[engine.Project, engine.CheckSetup]:
    """The example's files written, and the engine asked about the first."""
    texts = files(example)
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    batch = Batch(root, Settings(**example.options), None, (next(iter(texts)),), ())
    return engine.setup(batch, engine.CheckOptions(), root)


@pytest.mark.parametrize(("rule", "example"), list(examples()))
def test_example(rule: type[Rule], example: Example, tmp_path: Path) -> None:
    project, asked = start(example, tmp_path)
    report = engine.check(project, asked)
    found = [finding for finding in report.findings if finding.rule == rule.name]
    everything = [(finding.rule, finding.message) for finding in report.findings]
    assert len(found) == example.finds, everything
    _fits_the_first_screen(report, tmp_path)
    assert not any(name == "internal-error" for name, _ in everything), everything
    for words in example.says:
        assert words in found[0].message
    if example.fixed is not None:
        after = _fixed(project, asked, example.unsafe)
        for name, text in example.fixed.items():
            assert after.get(name, project.source(name).text) == textwrap.dedent(text).lstrip("\n")


def _fits_the_first_screen(report: Report, root: Path) -> None:
    """Each finding has at most eight lines of 100 columns; -v has all that a finding holds."""
    outcome = engine.outcome_of([report], root)
    for finding in report.findings:
        brief = list(short(outcome, report, finding, Look(width=100)))
        assert len(brief) <= MOST_LINES, "\n".join(brief)
    whole = "".join(render("full", outcome, Look(detail="all")).split())
    for finding in report.findings:
        for text in (finding.message, *finding.notes, *finding.help):
            assert "".join(clean(text).split()) in whole


def _fixed(project: engine.Project, asked: engine.CheckSetup, unsafe: bool) -> dict[str, str]:
    from preflight.engine.rounds import fixed

    def same(report: Report) -> Report:
        return report

    return fixed(project, asked, unsafe, same).texts


@pytest.mark.parametrize("rule", registry.rules().values(), ids=lambda rule: rule.name)
def test_every_rule_is_documented_and_shown(rule: type[Rule]) -> None:
    assert rule.__doc__
    assert len(rule.__doc__.strip().splitlines()) > 2
    assert rule.summary
    assert not rule.summary.endswith(".")
    assert any(example.finds for example in rule.examples), "an example that triggers it"
    assert any(not example.finds for example in rule.examples), "an example that does not"
