"""What is kept is kept by kind and place, and forgotten with the file that it was made of."""

from __future__ import annotations

import pytest

from preflight.vocabulary.remembered import Kind, Remembered

NUMBERS: Kind[int] = Kind("a number")
OTHERS: Kind[int] = Kind("a number")


def test_two_kinds_of_one_name_are_two() -> None:
    kept = Remembered()
    kept.put(NUMBERS, 1, "a.yaml")
    assert kept.known(OTHERS, "a.yaml") is None
    assert kept.known(NUMBERS, "b.yaml") is None
    assert kept.known(NUMBERS) is None


def test_a_failure_is_not_kept() -> None:
    kept = Remembered()
    with pytest.raises(ZeroDivisionError):
        kept.get(NUMBERS, lambda: 1 // 0, "a.yaml")
    assert kept.get(NUMBERS, lambda: 2, "a.yaml") == 2


def test_a_thing_is_made_once() -> None:
    kept = Remembered()
    assert kept.get(NUMBERS, lambda: 1, "a.yaml") == 1
    assert kept.get(NUMBERS, lambda: 2, "a.yaml") == 1
    assert kept.get(NUMBERS, lambda: 0, "a.yaml", "1.2") == 0
    assert list(kept.all(NUMBERS, "a.yaml")) == [1, 0]


def test_what_was_made_of_a_changed_file_is_forgotten() -> None:
    kept = Remembered()
    for where in ((), ("a.yaml",), ("a.yaml", "1.1"), ("b.yaml",)):
        kept.put(NUMBERS, len(where), *where)
    copy = kept.without({"a.yaml"})
    assert list(copy.all(NUMBERS)) == [0, 1]
    assert copy.known(NUMBERS, "a.yaml", "1.1") is None
    assert kept.known(NUMBERS, "a.yaml", "1.1") == 2
