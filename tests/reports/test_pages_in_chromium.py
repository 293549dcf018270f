"""The pages in Debian's Chromium: nothing leaves, no script of a stranger runs, axe-core has nothing to complain of.

The browser is Debian's (apt-get install chromium chromium-driver); axe-core comes from `npm install --prefix
tests/reports/browser`. Without them these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, axe, missing
from command_line import PROGRAM, SWEEP, Command, preflight
from folders import Write
from msgspec.structs import replace
from outcomes import GIB
from test_page_attacks import pages

from preflight.reports import measured
from preflight.reports.page import SAFE, UNSAFE, page, table
from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.watched import MeasuredPeak, MeasuredRun

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(missing()), reason=missing())]
RUN = MeasuredRun(
    "3f2a1b", "2026-01-02 10:11", "oom", "bert batch 8 x 128", "A100, torch 2.7", 9, 61.0,
    tuple(MeasuredPeak(tier, phase, GIB * at) for tier in ("allocated", "reserved")
          for at, phase in enumerate(("forward", "backward", "optimizer"), 2)),
    {"allocated": Interval(3 * GIB, 4 * GIB, 5 * GIB)}, {"limit": 9 * GIB}, "memory ran out in backward", "1.0",
)  # fmt: skip
CHECKED = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(
    one => [one.id, one.nodes.map(node => node.html.slice(0, 200))])), error => done([String(error)]));"""


@pytest.fixture(params=[False, True], ids=["light", "dark"])
def window(request: pytest.FixtureRequest) -> Iterator[Chromium]:
    found = Chromium(dark=request.param)
    yield found
    found.close()


@pytest.fixture
def made(project: Write, check: Command, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with one page of each kind."""
    root = project({"sweep.yaml": SWEEP.replace("{value: 64}", "{values: [8, 64]}"), "train.py": PROGRAM})
    check("sweep.yaml", "--gpu", "RTX 4090", "--output", "html=check.html")
    words = ("bert-base-uncased", "--set", "train.batch_size=8", "--set", "train.seq_len=128", "--gpu", "RTX 4090")
    assert preflight(capsys, "estimate", *words, "--output", "html=estimate.html").status == 0
    (root / "run.html").write_text(measured.render([RUN]))
    (root / "runs.html").write_text(measured.render([RUN, replace(RUN, name="77aa", outcome="completed", died="")]))
    return root


KINDS = ("check", "estimate", "run", "runs")


def test_nothing_leaves_and_nothing_is_refused(made: Path, window: Chromium) -> None:
    for kind in KINDS:
        file = made / f"{kind}.html"
        window.open(file)
        assert set(window.requests()) == {file.as_uri()}
        assert window.complaints() == []


def test_axe_finds_nothing(made: Path, window: Chromium) -> None:
    script = axe()
    for kind in KINDS:
        window.open(made / f"{kind}.html")
        window.run("for (const one of document.querySelectorAll('details')) one.open = true")
        window.run(script)
        assert window.wait(CHECKED) == [], kind


def test_no_attack_becomes_an_element(tmp_path: Path) -> None:
    window = Chromium()
    try:
        for name, text in pages(tmp_path):
            (tmp_path / name).write_text(text, encoding="utf-8")
            window.open(tmp_path / name)
            strange = "img, link, iframe, object, [onload], [onerror], [onfocus], [onmouseover], [style]"
            assert window.run("return document.querySelectorAll(arguments[0]).length", strange) == 0
            assert window.run("return document.scripts.length") == 1
            assert set(window.requests()) == {(tmp_path / name).as_uri()}
            assert window.complaints() == []
    finally:
        window.close()


def test_a_policy_stops_what_would_run(tmp_path: Path) -> None:
    """The second line of defence: were an attack markup, it would not run."""
    window = Chromium()
    try:
        attack = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\">"
        (tmp_path / "page.html").write_text(page("a page", attack))
        window.open(tmp_path / "page.html")
        assert window.run("return document.title") == "a page"
        assert any("Content Security Policy" in one for one in window.complaints())
    finally:
        window.close()


def test_the_keyboard_reaches_all_and_a_screen_reader_has_names(made: Path, window: Chromium) -> None:
    window.open(made / "check.html")
    window.press("Tab")
    assert window.run("return document.activeElement.textContent") == "Skip to the content"
    seen: list[str] = []
    for _ in range(40):
        window.press("Tab")
        seen.append(window.run("const at = document.activeElement; return at.tagName + ' ' + (at.textContent || '')"))
        if seen[-1].startswith("BODY"):
            break
    reached = {one.partition(" ")[0] for one in seen}
    assert {"SUMMARY", "DIV", "SELECT", "BODY"} <= reached
    names = window.tree()
    for role in ("image", "combobox", "link", "table", "heading"):
        found = [name for kind, name in names if kind == role]
        assert found, role
        assert all(found), role
    assert any("the peak is" in name for kind, name in names if kind == "image")


def rows(count: int) -> str:
    cells = [[(str(n), "num"), ("exceeds" if n % 2 else "fits", "")] for n in range(count)]
    marks = [UNSAFE if n % 2 else SAFE if n % 4 else "" for n in range(count)]
    return page("a page", "<h1>rows</h1>" + table("Rows", [("n", "num"), ("verdict", "*")], cells, "space", marks))


def test_filters_of_ten_thousand_rows(tmp_path: Path) -> None:
    window = Chromium()
    try:
        (tmp_path / "page.html").write_text(rows(10_000))
        window.open(tmp_path / "page.html")
        shown = "return [...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).length"
        said = "return document.querySelector('output').textContent"
        assert window.run(said) == "10,000 of 10,000 rows, the first 500 are shown"
        assert window.run(shown) == 500
        window.run("document.querySelector('select').focus()")
        window.press("Down")  # the first choice of "show"
        assert window.run(said) == "5,000 of 10,000 rows, the first 500 are shown"
        choices = window.run("return [...document.querySelectorAll('select')].map(one => one.length)")
        assert choices == [3, 3]
        window.run("document.querySelector('button').focus()")
        window.press("Enter")
        assert window.run(shown) == 5000
        assert window.run("return document.querySelector('button').hidden")
        assert json.dumps(window.complaints()) == "[]"
    finally:
        window.close()
