"""Versions that a project pins (`torch==2.4.0`) -> software.*; packages that its modules import -> data.imports."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator

from preflight.program.bindings import bind
from preflight.python.module import load_module
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Origin, Span

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
_HEAVY = frozenset({
    "torch", "transformers", "trl", "peft", "sentence_transformers", "setfit", "lightning", "pytorch_lightning",
    "datasets", "tensorflow", "ultralytics", "timm", "torchvision", "diffusers", "cv2", "scipy", "pandas",
    "accelerate", "PIL",
})  # fmt: skip
"""Packages whose import takes much memory."""
_FILES = ("requirements.txt", "requirements/base.txt", "requirements/train.txt", "pyproject.toml")


def pinned(program: str, project: Project) -> Iterator[Binding]:
    """Bindings of software.NAME, from requirements files in the program's folder, its parent and the project's root."""
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
        yield bind(f"software.{name}", Const(match.group("version"), place), Rank.read)


def imported(paths: Iterable[str], project: Project) -> Binding | None:
    """data.imports: the packages that the files import, by their first names; None if that is torch alone."""
    names = {"torch"}
    for path in paths:
        module = load_module(path, project)
        for node in ast.walk(module.tree) if module is not None else ():
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    heavy = names & _HEAVY
    return bind("data.imports", Const(tuple(sorted(heavy))), Rank.read) if heavy != {"torch"} else None
