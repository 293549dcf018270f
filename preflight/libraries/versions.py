"""Versions that a project pins exactly (`torch==2.4.0`) -> software.*: they decide defaults and losses."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from preflight.dialects.reading import Binding
from preflight.libraries.common import TEXT_RANK, bind
from preflight.project import Project, UnreadableFile
from preflight.values import Const, Origin, Span

_PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "lightning",
    "pytorch-lightning",
    "ultralytics",
    "timm",
)
_PIN = re.compile(
    rf"""^[\s"']*(?P<name>{"|".join(_PACKAGES)})\s*==\s*(?P<version>\d+(?:\.\d+)*[\w.+]*)""",
    re.MULTILINE | re.IGNORECASE,
)
_FILES = ("requirements.txt", "requirements/base.txt", "requirements/train.txt", "pyproject.toml")


def pinned(program: str, project: Project) -> Iterator[Binding]:
    """Bindings of software.NAME, from the requirements beside the program and at the project's root."""
    here = posixpath.dirname(program)
    folders = dict.fromkeys(("", posixpath.dirname(here), here))
    for path in (posixpath.normpath(posixpath.join(folder, name)) for folder in folders for name in _FILES):
        if project.exists(path):
            yield from _pins(path, project)


def _pins(path: str, project: Project) -> Iterator[Binding]:
    try:
        text = project.source(path).text
    except UnreadableFile:
        return
    for match in _PIN.finditer(text):
        place = Origin(path, Span(*match.span("version")))
        name = match.group("name").lower().replace("pytorch-lightning", "lightning")
        yield bind(f"software.{name}", Const(match.group("version"), place), TEXT_RANK)
