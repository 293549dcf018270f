"""docs/architecture.md has every room of the floor plan, and docs/glossary.md every dimension that a report names."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

from preflight.reports.law import MEANINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PLAN = tomllib.loads(Path(__file__).with_name("floor_plan.toml").read_text(encoding="utf-8"))
UNBUILT = "(not built yet)"


def rows(text: str) -> list[tuple[str, str]]:
    """First and second column of the rows whose first column is code."""
    return re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", text, re.MULTILINE)


ROOMS = dict(rows(MAP.partition("## The rooms")[2]))


def built(room: str) -> bool:
    folder = ROOT / "rules" / room if room == "preflight_rules" else ROOT / "preflight" / room
    return folder.is_dir() or folder.with_suffix(".py").is_file()


def test_the_map_has_the_rooms_of_the_plan() -> None:
    assert list(ROOMS) == [room for floor in PLAN["floors"] for room in floor["rooms"]]


def test_the_map_says_which_rooms_are_not_built() -> None:
    assert [room for room, words in ROOMS.items() if words.endswith(UNBUILT)] == [r for r in ROOMS if not built(r)]


def test_the_map_names_files_that_exist() -> None:
    named = re.findall(r"`((?:preflight|rules|tests)/[^`]*)`", MAP)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_glossary_has_the_dimensions_of_reports() -> None:
    assert dict(rows(GLOSSARY.partition("## Dimensions")[2])) == MEANINGS


def test_the_words_of_the_glossary_are_sorted() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\*", GLOSSARY, re.MULTILINE)
    assert len(words) > 20
    assert [(a, b) for a, b in pairwise(words) if a.lower() >= b.lower()] == []
