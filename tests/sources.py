"""The source, for tests that look through all of it: only files that have one of some words are parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("preflight", "rules/preflight_rules")


@lru_cache(maxsize=4)
def texts(*folders: str) -> tuple[tuple[str, str], ...]:
    """(path from the root, text) of each Python file."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple((path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths)


def with_one_of(*words: str, folders: tuple[str, ...] = PACKAGES) -> Iterator[tuple[str, str]]:
    """(path, text) of the files in which one of the words stands, be it a part of another."""
    pattern = re.compile("|".join(map(re.escape, words)))
    return ((name, text) for name, text in texts(*folders) if pattern.search(text))


def trees(*words: str, folders: tuple[str, ...] = PACKAGES) -> Iterator[tuple[str, ast.Module]]:
    """(path, tree) of the files in which one of the words stands: what a test looks for must have one of them."""
    return ((name, ast.parse(text)) for name, text in with_one_of(*words, folders=folders))
