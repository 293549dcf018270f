"""A part of a dump made again and held against what was kept."""

from __future__ import annotations

import golden_diff
import pytest
from golden_dumps import DUMPS, made


def one_of(parts: int) -> list[object]:
    """The parts of a dump: the first is tried always, the others among the slow tests."""
    return [pytest.param(part, marks=pytest.mark.slow if part else ()) for part in range(parts)]


def differs(dump: str, part: int = 0, parts: int = 1) -> str:
    """What differs in every `parts`-th case from the `part`-th on, for people to read; empty where nothing does."""
    wanted = DUMPS[dump]
    kept = wanted.kept()
    names = sorted({*wanted.names(), *kept})[part::parts]
    here = set(wanted.names())
    now = dict(made(dump, name) for name in names if name in here)
    found = golden_diff.differences({name: kept[name] for name in names if name in kept}, now)
    left, _ = golden_diff.split(dump, found, golden_diff.intended())
    return "\n" + golden_diff.report(dump, left, len(names)) if left else ""
