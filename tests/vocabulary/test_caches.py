"""Caches: what they must not mix up, and what they forget."""

from __future__ import annotations

import pytest

from preflight.vocabulary.caches import EVERY_FILE, BoundedCache, CacheKind, Remembered


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


def test_a_failure_is_not_in_the_bounded_cache() -> None:
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


# --- things by kind and place ---------------------------------------------------------------------------------------

NUMBERS: CacheKind[int] = CacheKind("a number")
OTHERS: CacheKind[int] = CacheKind("a number")


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
    assert list(copy.all(NUMBERS, "a.yaml")) == []
    assert list(copy.all(NUMBERS, "b.yaml")) == [1]
    assert copy.known(NUMBERS) == 0
    assert copy.known(NUMBERS, "a.yaml", "1.1") is None
    assert kept.known(NUMBERS, "a.yaml", "1.1") == 2
    copy.put(NUMBERS, 7, "b.yaml", "1.1")
    assert kept.known(NUMBERS, "b.yaml", "1.1") is None
    assert list(copy.without({"c.yaml"}).all(NUMBERS, "b.yaml")) == [1, 7]


def test_files_that_are_asked_for_are_noted_also_in_another_state() -> None:
    one, many = CacheKind[int]("one"), CacheKind[int]("many", of_many=True)
    memory = Remembered()
    memory.get(one, lambda: 1, "a.py", 3)
    memory.get(many, lambda: 2, "folder")
    with memory.watched() as outer:
        memory.get(one, lambda: 1, "a.py", 3)  # it is kept, and was made of the file all the same
        with memory.without(["b.py"]).watched() as inner:
            memory.ask("b.py")
        memory.get(many, lambda: 2, "folder")
    assert (outer, inner) == ({"a.py", "b.py", EVERY_FILE}, {"b.py"})
    memory.ask("c.py")
    assert "c.py" not in outer
