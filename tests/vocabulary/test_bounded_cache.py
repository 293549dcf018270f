"""The bounded cache: what it must not mix up, and what it forgets."""

from __future__ import annotations

import pytest

from preflight.vocabulary.bounded_cache import BoundedCache


def test_equal_objects_are_told_apart() -> None:
    some: BoundedCache[str] = BoundedCache(4)
    one, other = [1], [1]
    assert some.get(one, "", lambda: "one") == "one"
    assert some.get(other, "", lambda: "other") == "other"
    assert some.get(one, "", lambda: "again") == "one"


def test_an_object_that_is_gone_leaves_nothing_to_a_new_one() -> None:
    some: BoundedCache[int] = BoundedCache(2)
    for number in range(50):
        assert some.get([number], "", lambda number=number: number) == number


def test_keys_of_one_object_are_told_apart() -> None:
    some: BoundedCache[int] = BoundedCache(4)
    of = object()
    assert [some.get(of, key, lambda key=key: key) for key in (1, 2, 1)] == [1, 2, 1]


def test_what_fails_is_not_remembered() -> None:
    some: BoundedCache[int] = BoundedCache(4)
    with pytest.raises(ZeroDivisionError):
        some.get(None, "key", lambda: 1 // 0)
    assert some.get(None, "key", lambda: 3) == 3


def test_what_was_asked_for_the_longest_ago_goes_first() -> None:
    some: BoundedCache[int] = BoundedCache(2)
    for key in ("a", "b", "a", "c"):
        some.get(None, key, lambda: 0)
    assert len(some) == 2
    assert some.get(None, "a", lambda: 1) == 0
    assert some.get(None, "b", lambda: 1) == 1
