"""Mechanisms of the host law, each against a case in which it alone differs."""

from __future__ import annotations

import pytest

from preflight.job import Job, build
from preflight.memory.estimate import HostEstimate
from preflight.memory.host.checkpoint import COPIES
from preflight.memory.host.estimate import estimate_host, samples_in_shared_memory, solve_in_memory_bytes
from preflight.values import Unknown

MIB, GIB = 2**20, 2**30
SAMPLE = 3 * 224 * 224 * 4


def job(**fields: object) -> Job:
    plain: dict[str, object] = {
        "data.sample_bytes": SAMPLE, "train.batch_size": 64, "data.workers": 4, "data.shuffle": True,
        "data.samples": 10_000,
    }  # fmt: skip
    return build({**plain, **{name.replace("__", "."): value for name, value in fields.items()}})


def known(job: Job, parameters: int | None = None) -> HostEstimate:
    found = estimate_host(job, parameters, cuda=False)
    assert isinstance(found, HostEstimate), found
    return found


def test_spawned_workers_repeat_the_imports() -> None:
    light, heavy = (known(job(data__start_method="spawn", data__imports=names)) for names in (["torch"], ["lightning"]))
    base = heavy.breakdown["base"] - light.breakdown["base"]
    assert heavy.breakdown["workers"] - light.breakdown["workers"] == pytest.approx(4 * base, abs=8)


def test_forked_workers_do_not() -> None:
    light, heavy = (known(job(data__imports=names)) for names in (["torch"], ["lightning"]))
    assert heavy.breakdown["workers"] == light.breakdown["workers"]


def test_rows_as_large_as_samples_are_views() -> None:
    stored = {"data__in_memory_kind": "arrays", "data__samples": 1000}
    views = known(job(**stored, data__in_memory_bytes=1000 * SAMPLE))
    copies = known(job(**stored, data__in_memory_bytes=1000 * SAMPLE // 4))  # bytes that become floats
    assert copies.breakdown["workers"] - views.breakdown["workers"] > 4 * 64 * SAMPLE
    assert views.per_node.high > views.per_node.expected + 4 * 64 * SAMPLE  # they may be copied all the same


def test_each_worker_visits_its_part_unless_samples_are_shuffled() -> None:
    held = {"data__in_memory_kind": "strings", "data__in_memory_bytes": GIB, "data__samples": None}
    shuffled = known(job(**held)).breakdown["copy_on_write"]
    in_order = known(job(**held, data__shuffle=False)).breakdown["copy_on_write"]
    assert shuffled == pytest.approx(4 * in_order, abs=4)


def test_of_items_larger_than_pages_a_page_is_copied() -> None:
    held = {"data__in_memory_kind": "strings", "data__in_memory_bytes": GIB}
    assert known(job(**held, data__samples=1000)).breakdown["copy_on_write"] == pytest.approx(4 * 1000 * 4096, abs=4)
    short = known(job(**held, data__samples=10_000_000)).breakdown["copy_on_write"]
    assert short == pytest.approx(4 * 0.94 * GIB, rel=0.01)


def test_the_order_of_samples_is_drawn_before_a_batch_is_there() -> None:
    found = known(job(data__samples=100_000_000, data__sample_bytes=8))
    assert found.peak == "start of an epoch"
    assert found.breakdown["shuffle"] == 48 * 100_000_000


def test_pictures_cost_their_decoder() -> None:
    plain, decoded = known(job()), known(job(data__imports=["torch", "PIL"]))
    assert decoded.breakdown["workers"] - plain.breakdown["workers"] == pytest.approx(
        4 * (5 * MIB + 0.2 * 64 * SAMPLE), abs=4
    )


def test_large_batches_set_off_a_collection_in_young_heaps() -> None:
    tiny = {"data__sample_bytes": 8, "task": "image-classification"}
    below, above = (known(job(**tiny, train__batch_size=size)).breakdown["workers"] for size in (349, 350))
    assert above - below > 4 * 30 * MIB
    old = {**tiny, "data__imports": ["transformers"]}
    below, above = (known(job(**old, train__batch_size=size)).breakdown["workers"] for size in (349, 350))
    assert above - below < MIB


def test_heaps_that_may_grow_are_said() -> None:
    small = known(job(train__batch_size=4, data__sample_bytes=4 * MIB))
    assert any("holes of their heaps" in note for note in small.notes)
    for other in ({"train__batch_size": 64}, {"train__batch_size": 4, "data__sample_bytes": 64 * MIB}):
        assert not any("holes" in note for note in known(job(**other)).notes)


@pytest.mark.parametrize("load", sorted(COPIES))
def test_ways_of_loading(load: str) -> None:
    here = job(data__workers=0, data__sample_bytes=8, model__load=load, parallel__ranks_per_node=2)
    found = known(here, 10**9)
    assert found.peak == "load"
    assert found.breakdown["checkpoint"] == 2 * 4 * 10**9 * COPIES[load]
    pages = load == "from-pretrained"  # of a file, where nothing is cast
    assert (found.per_node.low < 2 * GIB) == pages


def test_samples_in_shared_memory_are_those_of_all_ranks() -> None:
    assert samples_in_shared_memory(job()) == (4 * 2 + 1) * 64
    assert samples_in_shared_memory(job(parallel__ranks_per_node=2)) == 2 * (4 * 2 + 1) * 64
    assert samples_in_shared_memory(job(data__workers=0)) == 0
    assert samples_in_shared_memory(job(train__batch_size=None)) is None


def test_the_largest_data_set_is_the_edge() -> None:
    here = job(machine__memory_limit=16 * GIB, data__in_memory_kind="objects", data__samples=None)
    largest = solve_in_memory_bytes(here)
    assert largest is not None
    assert 0 < largest < 16 * GIB
    at, above = (
        estimate_host(here.model_copy(update={"data": here.data.model_copy(update={"in_memory_bytes": size})}))
        for size in (largest, largest + 4)
    )
    assert not isinstance(at, Unknown)
    assert not isinstance(above, Unknown)
    assert (at.verdict, above.verdict) == ("fits", "at-risk")
