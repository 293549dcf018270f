"""Tapes at lengths that are multiples of 8, and at batch 1."""

from __future__ import annotations

import pytest

from preflight.memory.device.law import store
from preflight.memory.device.law.alignment import aligned, events_at, joined, padded
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape

BIAS: Size = ((2, (("b", 1), ("s", 2))),)
PADDED: Size = ((2, (("b", 1), ("s", 1), ("s8", 1))),)
OTHER: Size = ((4, (("b", 1), ("s", 1))),)
SIZES = (BIAS, PADDED, OTHER)


def born(birth: int, size: int) -> tuple[str, int, int, str, int]:
    return "b", birth, size, "", 0


def dies(birth: int) -> tuple[str, int, int, str, int]:
    return "d", birth, -1, "", 0


def test_what_is_padded_is_known_by_its_size() -> None:
    assert padded(SIZES) == {"s": {1: 0}}
    assert aligned(SIZES, {"s": 64}) == {"s"}
    assert not aligned(SIZES, {"s": 63})


def test_a_copy_that_is_not_made_lets_its_source_live_on() -> None:
    events = [born(0, 0), born(1, 1), dies(0), born(2, 2), dies(1), dies(2)]
    left = [event for event in joined(events, SIZES, frozenset({"s"})) if event[0]]
    assert left == [born(0, 0), born(2, 2), dies(0), dies(2)]


def test_what_is_cut_out_of_a_padded_gradient_is_that_gradient() -> None:
    events = [born(0, 0), born(1, 1), dies(0), born(2, 0), dies(1), born(3, 2), dies(2)]
    left = [event for event in joined(events, SIZES, frozenset({"s"})) if event[0]]
    assert left == [born(0, 0), born(3, 2), dies(0)]


def test_a_copy_that_outlives_the_step_stays() -> None:
    events = [born(0, 0), born(1, 1), dies(0)]
    assert [event for event in joined(events, SIZES, frozenset({"s"})) if event[0]] == [born(0, 0)]


def tape_of(name: str, words: tuple[str, ...]) -> Tape:
    key = next(key for key in store.keys(name) if all(word in key.split(" ") for word in words))
    made = store.load(store.LawKey(name, key))
    assert made is not None
    return made.tape


def test_a_multiple_of_8_takes_no_more_than_a_smooth_law_says() -> None:
    law = Law(tape_of("t5", ("eval", "sdpa", "padded", "fp32/bf16")))
    dims = {"b": 4, "s": 256, "t": 256, "a": 8, "d": 64, "h": 512, "f": 64, "V": 99, "L": 6, "Ld": 6}
    assert law.peak(dims).bytes < law.peak(dims, smooth=True).bytes
    odd = {**dims, "s": 255, "t": 255}
    assert law.peak(odd).bytes == law.peak(odd, smooth=True).bytes <= law.peak(dims, smooth=True).bytes


@pytest.mark.parametrize("name", ["phi3", "gptj", "t5"])
def test_less_is_made_at_batch_1_where_attention_is_written_out(name: str) -> None:
    """What is laid out anew at batch 2 is shared at batch 1."""
    tape = tape_of(name, ("train", "eager", "padded", "fp32/bf16", "stored", "full"))
    dims = {
        "b": 1,
        "s": 77,
        "t": 30,
        "a": 4,
        "k": 4,
        "d": 16,
        "h": 64,
        "f": 96,
        "V": 99,
        "R": 8,
        "P": 99,
        "L": 5,
        "Ld": 5,
    }
    one = tape.at(dims)
    assert one is not tape
    assert tape.at({**dims, "b": 2}) is tape
    assert len(events_at(one, dims)) < len(events_at(tape, dims))
    assert Law(tape).peak(dims) == Law(one).peak(dims)
