"""The page of `--output html`: one file, nothing of the user's is markup, nothing is asked of the network."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, Command, preflight
from folders import Write
from msgspec.structs import replace
from outcomes import GIB, device, host, outcome, study

from preflight.reports import html
from preflight.reports.figures import step_figure
from preflight.reports.page import SAFE, UNSAFE, page, table
from preflight.reports.streams import safe
from preflight.reports.style import Look
from preflight.reports.svg import step, text_of
from preflight.vocabulary.estimates import Estimates, StepMoment
from preflight.vocabulary.progress import TimeOver
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.verdicts import Points

HOSTILE = "<img src=x onerror=alert(1)>\"'&\x1b[31m##vso[task]\u202e"
EMPTY = {"meta", "br", "img", "link", "input", "hr"}


class Read(HTMLParser):
    """Elements, their texts, and whether they are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def whole(text: str) -> Read:
    """The page, with what holds for every page."""
    read = Read(text)
    assert read.open == []
    for tag, attributes in read.found:
        assert not any(name.startswith("on") or name in ("src", "style", "action") for name in attributes), tag
        assert str(attributes.get("href", "#")).startswith(("#", "https://")), tag
    assert not read.all("img")
    assert not read.all("link")
    [policy] = [one["content"] for one in read.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in policy
        assert not re.search(r"url\(|@import|fetch|XMLHttp|innerHTML|eval", inside)
    assert all("aria-label" in one or one.get("aria-hidden") for one in read.all("svg"))
    assert all(one.get("scope") in ("col", "row") for one in read.all("th"))
    return read


def test_texts_of_the_user_are_no_markup_and_no_commands() -> None:
    shown = text_of(HOSTILE)
    assert not re.search(r"[<>\"'\x1b\u202e]|##", shown)
    made = page(HOSTILE, f"<p>{shown}</p>" + table(HOSTILE, [(shown, "num*")], [[(shown, "")]]))
    read = whole(made)
    assert safe(made) == made
    assert any("onerror=alert(1)" in text for text in read.texts)


def test_drawing_of_a_step_has_its_parts_and_the_line_of_the_card() -> None:
    points = [StepMoment("forward", n * GIB, n * GIB, (GIB, 0, 0, (n - 1) * GIB, 0, 0)) for n in range(1, 9)]
    figure = step_figure(points, GIB, 6 * GIB, 4)
    assert figure is not None
    assert [name for name, _ in figure.layers] == ["context and cache", "weights", "activations"]
    assert (figure.peak.height, figure.top, len(figure.columns)) == (9 * GIB, 9 * GIB, 4)
    drawn = step(figure, "a step")
    assert drawn.count("<path") == 3
    assert 'class="limit"' in drawn
    far = step_figure(points, GIB, 600 * GIB, 4)
    assert far is not None
    assert "limit" not in step(far, "a step")


def test_page_of_a_check(project: Write, check: Command) -> None:
    root = project(
        {
            "sweep.yaml": SWEEP.replace("{value: 64}", "{values: [8, 64]}").replace("as in the paper", "<script>"),
            "train.py": PROGRAM,
        }
    )
    check("sweep.yaml", "--gpu", "RTX 4090", "--output", "html=report.html")
    text = (root / "report.html").read_text()
    read = whole(text)
    assert len(read.all("script")) == 1
    words = " ".join(read.texts)
    for part in ("too-large", "sweep.yaml:4:", "<script>", "train.batch_size", "known as", "Combinations"):
        assert part in words, part
    check("sweep.yaml", "--gpu", "RTX 4090", "--output", "html=again.html")
    assert (root / "again.html").read_text() == text


def test_page_of_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    job = ("bert-base-uncased", "--set", "train.batch_size=8", "--set", "train.seq_len=128")
    done = preflight(capsys, "estimate", *job, "--gpu", "RTX 4090", "--output", f"html={out}")
    assert done.status == 0, done.err
    read = whole(out.read_text())
    words = " ".join(read.texts)
    for part in ("Memory through a step", "What fits", "RTX 4090", "optimizer", "bert-base-uncased"):
        assert part in words, part


@pytest.mark.parametrize("text", ["json=a", "html", "html=", "page.html"])
def test_other_outputs_of_an_estimate_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = preflight(capsys, "estimate", "bert-base-uncased", "--output", text)
    assert done.status == 2
    assert "write html=FILE" in done.err


def test_what_needs_more_time_is_left_out(project: Write) -> None:
    def late(*given: object) -> Points:
        raise TimeOver("not finished within 3 s")

    found = study(Estimates(device(40 * GIB), host(8 * GIB)))
    result = replace(found, points=late, estimate=late, moments=None)
    text = html.render(outcome(project({}), (), (result,)), Look())
    assert text.count("left out: not finished within 3 s") == 2
    assert "GPU memory: 40 GiB" in text


def test_rows_are_marked_by_what_is_unsafe_and_by_the_safe_part(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP.replace("{value: 64}", "{values: [8, 64]}"), "train.py": PROGRAM})
    check("sweep.yaml", "--gpu", "RTX 3060", "--output", "html=report.html")
    text = (root / "report.html").read_text()
    marked = re.findall(r'<tr data-mark="([^"]+)">', text)
    assert set(marked) <= {UNSAFE, SAFE}
    assert marked == sorted(marked, reverse=True)  # those that need most come first


def test_page_of_a_check_of_nothing_says_so_as_loud_as_a_terminal(project: Write, check: Command) -> None:
    root = project({"notes.yaml": "a: 1\n", "tools.py": "print(1)\n"})
    said = check(".", "--output", "html=page.html", "--output", "sarif=page.sarif").out
    text = (root / "page.html").read_text()
    assert "no job was checked" in said
    assert "<h1>preflight: no job was checked" in text
    assert '<p class="warning">warning: no job was checked: ' in text
    assert "nothing-checked" in (root / "page.sarif").read_text()


def test_page_without_a_verdict_does_not_look_clean(project: Write) -> None:
    why = Unknown("it was not judged within 3 s", Cause.time_limit)
    known, late = study(Estimates(device(8 * GIB), None)), study(Estimates(None, None))
    text = html.render(outcome(project({}), (), (late, replace(late, unjudged=why))), Look())
    assert "<h1>preflight: no verdict on 2 studies in" in text
    assert '<p class="warning">Not judged: it was not judged within 3 s</p>' in text
    assert "Unknown: no reason is known" in text
    assert "<h1>preflight: no findings in" in html.render(outcome(project({}), (), (known, late)), Look())
