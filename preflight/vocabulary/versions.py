"""Versions of software as numbers that compare."""

from __future__ import annotations

import re

NEWEST = (10**6,)
"""What a version counts as that nobody states: the library of today."""


def release(text: str | None) -> tuple[int, ...] | None:
    """The first three numbers of a version, None where it has none: "2.4+cu121" -> (2, 4), ">=4.46,<5" -> (4, 46)."""
    found = re.search(r"\d+(?:\.\d+){0,2}", (text or "").partition("+")[0])
    return None if found is None else tuple(int(number) for number in found[0].split("."))


def major_minor(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version, None where it has fewer: "glibc 2.36" -> (2, 36)."""
    numbers = release(text) or ()
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None
