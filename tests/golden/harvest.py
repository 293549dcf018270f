"""A pytest plugin that keeps the projects that tests write; `scripts/golden.py --harvest` makes projects.jsonl.gz.

    GOLDEN_HARVEST=FOLDER PYTHONPATH=tests/golden pytest -p harvest tests/dialects tests/study ...

Every project in a temporary directory that a test reads (its files, its settings, what is asked of it) becomes a case
of the readings. The cases are data: they stay when the tests that wrote them are moved or rewritten.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import adapter
import pytest

MOST_OF_ONE_TEST = 6
"""Tests of random examples write hundreds of projects that are much alike."""
MOST_FILES, MOST_BYTES = 60, 32_000
TEMPORARY = Path(tempfile.gettempdir()).resolve()
_seen: dict[str, dict[str, object]] = {}


def texts(root: Path) -> dict[str, str] | None:
    """All files of a small project; None where it is not one, or is not in a temporary directory."""
    if not root.is_relative_to(TEMPORARY) or root == TEMPORARY:
        return None
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            return None
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        try:
            found[path.relative_to(root).as_posix()] = path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        if len(found) > MOST_FILES or sum(map(len, found.values())) > MOST_BYTES:
            return None
    return found


def remember(project: object, paths: tuple[str, ...], overrides: dict[str, object]) -> None:
    """Keeps what a test asks, once for the same files and settings and paths."""
    root, settings = adapter.root_and_settings(project)
    files = texts(root)
    if not files or settings is None or any(not (root / path).is_relative_to(root) for path in paths):
        return
    try:
        case = {"files": files, "named": list(paths), "settings": settings, "set": overrides}
        _seen.setdefault(json.dumps(case, sort_keys=True), case)
    except (TypeError, ValueError):
        return


def pytest_configure(config: pytest.Config) -> None:
    adapter.listen(remember)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _seen.clear()
    yield
    into = Path(os.environ["GOLDEN_HARVEST"]) / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl"
    with into.open("a", encoding="utf-8") as file:
        for case in list(_seen.values())[:MOST_OF_ONE_TEST]:
            file.write(json.dumps({"test": item.nodeid, **case}, sort_keys=True) + "\n")
