"""The caching allocator's model, on sequences whose outcome follows from CUDACachingAllocator.cpp by hand."""

from __future__ import annotations

import random

import pytest

from preflight.machines.gpus import find_gpu
from preflight.memory.device.estimate import room
from preflight.memory.device.step.allocator import LARGE_SEGMENT, MIB, SERIALS, SMALL_SEGMENT, CachingAllocator
from preflight.vocabulary.job import build


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        pytest.param(1, 512, SMALL_SEGMENT, id="rounded to 512"),
        pytest.param(513, 1024, SMALL_SEGMENT, id="next multiple"),
        pytest.param(MIB, MIB, SMALL_SEGMENT, id="1 MiB is still small"),
        pytest.param(MIB + 1, MIB + 512, LARGE_SEGMENT, id="above 1 MiB: a 20 MiB segment, split"),
        pytest.param(10 * MIB, 10 * MIB, 10 * MIB, id="10 MiB gets a segment of its own"),
        pytest.param(11 * MIB + 1, 11 * MIB + 512, 12 * MIB, id="rounded to 2 MiB; a rest below 1 MiB stays"),
    ],
)
def test_one_request(nbytes: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(nbytes)
    # A rest of at most 1 MiB in a large block is not split off: the block keeps it.
    assert allocator.reserved == reserved
    assert allocator.allocated in (allocated, reserved)


def test_a_freed_block_serves_the_next_request() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(50 * MIB)
    allocator.free(block)
    allocator.malloc(50 * MIB)
    assert allocator.reserved == 50 * MIB


def test_neighbours_merge() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]
    assert allocator.reserved == LARGE_SEGMENT
    for block in blocks:
        allocator.free(block)
    allocator.malloc(9 * MIB)
    allocator.malloc(9 * MIB)
    assert allocator.reserved == LARGE_SEGMENT


def test_cached_segments_are_given_back_before_the_limit_is_passed() -> None:
    allocator = CachingAllocator(limit=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    assert allocator.reserved == 80 * MIB
    assert not allocator.overflow
    allocator.malloc(40 * MIB)
    assert allocator.overflow


def test_expandable_segments_do_not_fragment() -> None:
    sizes = [30 * MIB, 50 * MIB, 70 * MIB, 90 * MIB]
    reserved = {}
    for expandable in (False, True):
        allocator = CachingAllocator(expandable=expandable)
        for size in sizes:
            allocator.free(allocator.malloc(size))
        reserved[expandable] = allocator.reserved
    assert reserved[False] == sum(sizes)
    assert reserved[True] == 100 * MIB


@pytest.mark.parametrize("expandable", [False, True])
def test_books_balance(expandable: bool) -> None:
    """Whatever happens, what is reserved is what is allocated and what is free, and all of it comes back."""
    rng = random.Random(7)
    allocator = CachingAllocator(expandable=expandable)
    live = []
    for _ in range(3000):
        if live and rng.random() < 0.48:
            allocator.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(allocator.malloc(int(10 ** rng.uniform(1, 8))))
        free = sum(key >> SERIALS for pool in allocator._pools.values() for key in pool)
        assert allocator.allocated + free == allocator.reserved
        assert allocator.allocated == sum(block.size for block in live)
    for block in live:
        allocator.free(block)
    assert allocator.allocated == 0
    allocator.empty_cache()
    assert allocator.reserved == (allocator.reserved if expandable else 0)


def test_idle_segments_are_collected_above_the_threshold_and_the_oldest_first() -> None:
    allocator = CachingAllocator(limit=400 * MIB, collect=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    for _ in range(4):
        allocator.free(allocator.malloc(62 * MIB))
    assert allocator.reserved == (60 + 62) * MIB
    allocator.malloc(80 * MIB)
    assert allocator.reserved == (62 + 80) * MIB  # the 60 MiB were idle for longer than the average
    kept = CachingAllocator(limit=400 * MIB)
    kept.free(kept.malloc(60 * MIB))
    kept.malloc(80 * MIB)
    assert kept.reserved == (60 + 80) * MIB


def test_a_fraction_is_what_a_process_may_reserve() -> None:
    gpu = find_gpu("A100 80GB")
    assert gpu is not None
    whole, context = room(build({}), gpu)
    half, same = room(build({"train.allocator.per_process_fraction": 0.5}), gpu)
    two, _ = room(build({"train.allocator.per_process_fraction": 0.3, "parallel.trials_per_gpu": 2}), gpu)
    assert (whole, same) == (gpu.capacity, context)
    assert half == round(0.5 * gpu.capacity) + context.expected
    assert two == 2 * (round(0.3 * gpu.capacity) + context.expected)
