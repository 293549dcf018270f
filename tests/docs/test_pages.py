"""Every page: what it shows is made today, its links lead somewhere, and the site's navigation has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from pages_of_the_guide import GUIDE, PAGES, ROOT, script

COSTLY = ("docs/how-to/estimate.md", "docs/tutorials/", "docs/how-to/state-values.md", "docs/explanation/law.md")
"""Pages whose outputs take more than a second to make, or folders of them."""
MORE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def anchors(path: Path) -> set[str]:
    """Fragments that a heading of a page has, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(text: str) -> Iterator[tuple[str, str]]:
    """Path and fragment of every relative link, of pictures too."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in link and not link.startswith("mailto:"):
            path, _, fragment = link.partition("#")
            yield path, unquote(fragment)


@pytest.mark.parametrize("page", [*PAGES, *MORE])
def test_links_lead_to_files_and_headings(page: str) -> None:
    file = ROOT / page
    broken = []
    for path, fragment in links(file.read_text(encoding="utf-8")):
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target)):
            broken.append(f"{path}#{fragment}")
    assert broken == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, with a comma\n\n[a](other.md#there) [b](https://x.org) ![c](c.svg)\n\n```\n# [no](no.md)\n```\n"
    )
    assert list(links(page.read_text())) == [("other.md", "there"), ("c.svg", "")]
    assert anchors(page) == {"a-title-with-a-comma"}


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    listed: list[str] = []

    def collect(entry: object) -> None:
        if isinstance(entry, str):
            listed.append(f"docs/{entry}")
        elif isinstance(entry, dict):
            for below in entry.values():
                collect(below)
        elif isinstance(entry, list):
            for below in entry:
                collect(below)

    collect(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == PAGES


@pytest.mark.parametrize("page", GUIDE)
def test_the_site_reads_lists_as_github_does(page: str) -> None:
    """Python-Markdown wants four spaces before what stands in a list, and cannot have a code block there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"^ +```.*", text, re.MULTILINE) == []
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^ {1,3}(?:-|\d+\.) .*", prose, re.MULTILINE) == []


def test_every_page_can_be_reached_from_the_first_one() -> None:
    seen, waiting = set(), ["docs/index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for path, _ in links((ROOT / page).read_text(encoding="utf-8")):
            target = (ROOT / page).parent / path
            found = target.resolve().relative_to(ROOT).as_posix()
            if found in PAGES:
                waiting.append(found)
    assert set(PAGES) - seen == set()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.startswith(COSTLY) else ()) for page in ["README.md", *GUIDE]],
)
def test_what_is_shown_is_made_today(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script("generate").as_of_today(page, text) == text, "run: python scripts/generate.py"


def test_a_part_of_an_output_is_what_head_and_tail_let_through() -> None:
    generate = script("generate")
    whole = generate.shown("preflight rule").splitlines()
    part = generate.shown("preflight rule | head -n 5 | tail -n 2").splitlines()
    assert part == [whole[0], "$ preflight rule | head -n 5 | tail -n 2", *whole[5:7], whole[-1]]


def test_every_output_on_a_page_is_made_by_a_command() -> None:
    """Outside the blocks that are made, no block looks like one: none has a finding or a size in GiB."""
    by_hand = []
    for page in ["README.md", *GUIDE]:
        text = (ROOT / page).read_text(encoding="utf-8")
        text = re.sub(r"<!-- (output|table|file): [^\n]+? -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        blocks = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        by_hand += [page for block in blocks if re.search(r"\d GiB|(error|warning)\[|^\$ ", block)]
    assert by_hand == []


WORDS = {
    "study": r"(?<!Optuna )\b(study|studies)\b",
    "law": r"\blaws?\b",
    "tier": r"\btiers?\b",
    "setup": r"\bsetups?\b",
}
EXPLAINED = ("docs/results/", "docs/architecture.md", "docs/design-notes.md", "docs/glossary.md")
"""Pages for people who work on preflight, and the glossary itself: the words are not linked there."""
OWN = {("docs/tutorials/index.md", word) for word in WORDS} | {("docs/explanation/law.md", word) for word in WORDS}
OWN |= {("docs/tutorials/optuna.md", "study")}
"""Pages that explain a word themselves, or mean Optuna's."""


def unlinked(text: str, word: str) -> str | None:
    """The first use of a word in the prose of a page, if it is not in the text of a link."""
    made = r"<!-- (?:output|table|file|write|skip): [^\n]+? -->.*?<!-- end -->|<!--.*?-->"
    code = r"^```.*?^```|^    [^\n]*|`[^`\n]*`|^#[^\n]*"
    prose = re.sub(rf"{made}|{code}", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.search(WORDS[word], prose)
    if found is None:
        return None
    before = prose[: found.start()]
    return None if before.rfind("[") > before.rfind("]") else prose[max(0, found.start() - 40) : found.end()]


@pytest.mark.parametrize("page", ["README.md", *(page for page in GUIDE if not page.startswith(EXPLAINED))])
def test_the_words_of_preflight_are_linked_at_first_use(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [use for word in WORDS if (page, word) not in OWN and (use := unlinked(text, word))] == []


def test_the_glossary_has_the_words() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    assert all(f"| **{word}** |" in glossary for word in WORDS)


def test_links_that_leave_the_guide_lead_to_the_repository() -> None:
    hooks = script("site_hooks")

    class File:
        src_uri = "reference/api.md"

    class Page:
        file = File

    class Config:
        repo_url = "https://example.org/project/"

    text = "[a](../../CONTRIBUTING.md#add-a-rule) [b](../glossary.md) [c](output.md)"
    came = hooks.on_page_markdown(text, Page, Config, None)
    there = "https://example.org/project/blob/main/CONTRIBUTING.md#add-a-rule"
    assert came == f"[a]({there}) [b](../glossary.md) [c](output.md)"
