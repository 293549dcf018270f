"""Versions as people and packages write them, and the numbers that they are compared by."""

from __future__ import annotations

import pytest

from preflight.vocabulary.notation import NEWEST, major_minor, release


@pytest.mark.parametrize("text", [None, "", "newest", "main", "==", "+cu121"])
def test_a_version_without_numbers_is_not_known(text: str | None) -> None:
    assert release(text) is None
    assert major_minor(text) is None


@pytest.mark.parametrize("text", ["2", "v2", "2+cu121", "2rc1"])
def test_one_number_has_no_minor(text: str) -> None:
    assert release(text) == (2,)
    assert major_minor(text) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.4.0+cu121", (2, 4, 0)),
        ("2.4+cu121", (2, 4)),
        ("5.23.0.dev0", (5, 23, 0)),
        (">=4.46", (4, 46)),
        (">=4.46,<5", (4, 46)),
        ("~= 0.43.2", (0, 43, 2)),
        ("v1.11", (1, 11)),
        ("23.11rc1", (23, 11)),
        ("22.05.3", (22, 5, 3)),
        ("24.11.0-0rc1", (24, 11, 0)),
        ("glibc 2.36", (2, 36)),
        ("1.13.1.post2", (1, 13, 1)),
    ],
)
def test_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers
    assert major_minor(text) == numbers[:2]
    assert numbers < NEWEST
