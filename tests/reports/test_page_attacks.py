"""What a stranger's file, a saved dry run or an imported record can put into a page: text, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from outcomes import GIB, device, finding, host, outcome, study

from preflight.reports import html, measured
from preflight.reports.html import Beside
from preflight.reports.style import Look
from preflight.vocabulary.estimates import Estimates, Holder
from preflight.vocabulary.job import build
from preflight.vocabulary.outcome import Outcome, StudyResult
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.values import Origin, Span
from preflight.vocabulary.verdicts import Point, Points
from preflight.vocabulary.watched import MeasuredPeak, MeasuredRun

ATTACKS = {
    "an element": "<img src=x onerror=alert(1)>",
    "the end of the script": "</script><script>alert(1)</script>",
    "the end of the style": "</style><link rel=stylesheet href=//x>",
    "the end of a title": "</title></svg><svg onload=alert(1)>",
    "the end of an attribute": "\" onmouseover=alert(1) x=\"' autofocus onfocus='alert(1)",
    "a comment": "--><!--<a href=javascript:alert(1)>",
    "the end of JSON": '"}]};alert(1)//\u2028',
    "bidirectional text": "\u202elmth.\u202d\u2066gpj\u2069\u200f",
    "entities": "&lt;img src=x&gt;&#x3c;b&#62;",
    "control characters": "\x1b[31m\x00\r\n<b>\x9b",
}
HIDDEN = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\x1b\x00\x9b]")
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "script", "a", "h1", "h2", "h3", "p", "section", "span",
    "code", "pre", "mark", "br", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary",
    "ul", "li", "svg", "rect", "line", "path", "text", "circle",
}  # fmt: skip


class Elements(HTMLParser):
    """Elements with their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def holds_no_attack(page: str) -> Elements:
    """The elements of a page that are all its own."""
    read = Elements(page)
    assert {tag for tag, _ in read.found} <= TAGS
    assert [tag for tag, _ in read.found].count("script") == 1
    for tag, attributes in read.found:
        assert not any(name.startswith("on") or name in ("src", "style", "autofocus") for name in attributes), tag
        assert str(attributes.get("href", "#")).startswith(("#", "https://")), tag
    assert not HIDDEN.search(page)
    return read


def estimates() -> Estimates:
    return Estimates(device(40 * GIB), host(8 * GIB), ("train.seq_len",))


def of_study(root: Path, result: StudyResult) -> Outcome:
    return outcome(root, (finding(),), (result,))


def in_message(root: Path, text: str) -> str:
    notes = {"notes": (text,), "help": (text,), "label": text, "rule": f"x{text}"}
    return html.render(outcome(root, (finding(message=text, **notes),)), Look())


def in_line(root: Path, text: str) -> str:
    found = outcome(root, (finding(origin=Origin("sweep.yaml", Span(0, 8))),))
    (root / "sweep.yaml").write_text(text.replace("\x00", "") + "\n" + text.replace("\x00", ""), encoding="utf-8")
    return html.render(found, Look())


def in_name(root: Path, text: str) -> str:
    found = of_study(root, study(estimates()))
    [report] = found.reports
    result = replace(report.studies[0], study=replace(report.studies[0].study, paths=(f"{text}.yaml",)))
    return html.render(replace(found, reports=(replace(report, studies=(result,), notes=(text,)),)), Look())


def in_axis(root: Path, text: str) -> str:
    result = study(estimates())
    point = Point({text: text, "batch_size": 64}, result.space.worst.job, estimates())
    [box] = result.space.boxes
    worst = replace(box.worst, assignment={text: text})
    space = replace(result.space, worst=worst, boxes=(replace(box, worst=worst),))
    listed = replace(
        result, space=space, points=lambda most: Points((point, point), False), estimate=lambda job: estimates()
    )
    return html.render(of_study(root, listed), Look())


def in_model(root: Path, text: str) -> str:
    job = build({"model.name": f"a{text}", "train.batch_size": 8})
    values = [("model.name", text, Standing.assumed)]
    return html.of_estimate(job, estimates(), text, lambda job: estimates(), Beside(), values, (text,))


def in_dry_run(root: Path, text: str) -> str:
    holders = (Holder(text, GIB, 3, "weights"),)
    return html.render(
        of_study(root, replace(study(estimates()), holders=lambda job: holders, remarks=(text,))), Look()
    )


def in_record(root: Path, text: str) -> str:
    run = MeasuredRun(
        text, text, text, text, text, 3, 2.0, (MeasuredPeak("reserved", text, GIB),), {}, {text: GIB}, text
    )
    return measured.render([run, run]) + "\n" + measured.render([run]).partition("<main")[2]


PLACES: dict[str, Callable[[Path, str], str]] = {
    "a finding": in_message, "a line of a file": in_line, "the name of a file": in_name, "an axis": in_axis,
    "a model": in_model, "a dry run": in_dry_run, "a record": in_record,
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_text(attack: str, place: str, tmp_path: Path) -> None:
    text = ATTACKS[attack]
    page = PLACES[place](tmp_path, text)
    if place == "a record":
        page = page.partition("</html>")[0] + "</html>"
    read = holds_no_attack(page)
    words = re.sub(r"[^a-z]", "", re.sub(HIDDEN, "", text).replace("\r", "").replace("\n", "").lower())
    assert words in re.sub(r"[^a-z]", "", re.sub(r"\\x..|\\u....|\\[rn]", "", read.text).lower())


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Every attack at every place, for a browser."""
    for number, (made, text) in enumerate((made, text) for made in PLACES.values() for text in ATTACKS.values()):
        page = made(root, text).partition("</html>")[0] + "</html>"
        yield f"{number}.html", page
