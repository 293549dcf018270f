"""Output formats, one module each. A module is imported when its format is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from preflight.reports.streams import Kind, safe

if TYPE_CHECKING:
    from preflight.reports.style import Look
    from preflight.vocabulary.outcome import Outcome

FORMATS = {
    "full": "preflight.reports.full",
    "concise": "preflight.reports.concise",
    "json": "preflight.reports.json_format",
    "sarif": "preflight.reports.sarif",
    "github": "preflight.reports.github",
    "gitlab": "preflight.reports.gitlab",
    "junit": "preflight.reports.junit",
    "html": "preflight.reports.html",
}
_KINDS: Mapping[str, Kind] = {"json": "json", "sarif": "json", "gitlab": "json", "github": "github"}
PEOPLE = ("full", "concise", "github")
"""Formats that end with a summary for people."""


def render(name: str, outcome: Outcome, look: Look) -> str:
    """The outcome in a format of FORMATS."""
    text: str = import_module(FORMATS[name]).render(outcome, look)
    return safe(text, kind_of(name), look.colour)


def kind_of(name: str) -> Kind:
    """The kind of text of a format, for the writer of streams."""
    return _KINDS.get(name, "text")


def automatic(environment: Mapping[str, str]) -> str:
    """The format `auto`: annotations in GitHub Actions, full text elsewhere."""
    return "github" if environment.get("GITHUB_ACTIONS") == "true" else "full"
