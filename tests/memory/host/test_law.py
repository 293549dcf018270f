"""Mechanisms of the host law, each against a case in which it alone differs."""

from __future__ import annotations

import pytest

from preflight.memory.host.base import PARTS
from preflight.memory.host.checkpoint import COPIES, copies
from preflight.memory.host.estimate import estimate_host, samples_in_shared_memory, solve_in_memory_bytes
from preflight.memory.host.heap import PER_PIN, PIN, PINS, Heap, first, of_steps
from preflight.memory.host.law import EXPECTED, HIGH
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

MIB, GIB = 2**20, 2**30
SAMPLE = 3 * 224 * 224 * 4


def job(**fields: object) -> Job:
    plain: dict[str, object] = {
        "data.sample_bytes": SAMPLE, "train.batch_size": 64, "data.workers": 4, "data.shuffle": True,
        "data.samples": 10_000,
    }  # fmt: skip
    return build({**plain, **{name.replace("__", "."): value for name, value in fields.items()}})


def known(job: Job, parameters: int | None = None) -> HostEstimate:
    found = estimate_host(job, parameters, cuda=False, trains=False)
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
    assert any("of freed samples" in note and "set software.glibc" in note for note in small.notes)
    for other in ({"software": {"glibc": "2.39"}}, {"data__sample_bytes": 64 * MIB, "task": "image-classification"}):
        found = known(job(**{"train__batch_size": 4, "data__sample_bytes": 4 * MIB, **other}))
        assert not any("holes" in note for note in found.notes)


def long(batch: int, samples: int | None, glibc: str | None) -> HostEstimate:
    software = {} if glibc is None else {"glibc": glibc}
    return known(job(train__batch_size=batch, data__workers=1, data__samples=samples, software=software))


def test_an_older_glibc_grows_with_the_batches_that_a_worker_loads() -> None:
    sizes = [long(4, 4 * batches, "2.36").breakdown["workers"] for batches in (8, 10, 30, 60, 200, 4000)]
    assert sizes == sorted(sizes)
    assert sizes[0] == sizes[1]
    assert sizes[-1] == sizes[-2]
    assert (sizes[-1] - sizes[0]) / SAMPLE == pytest.approx(PIN * PINS - first(4), abs=0.1)
    assert (sizes[2] - sizes[1]) / SAMPLE == pytest.approx(20 * 2 * PER_PIN, abs=0.1)


def test_a_newer_glibc_does_not() -> None:
    short, endless = (long(4, samples, "2.39").per_node for samples in (40, 400_000))
    assert short.expected == endless.expected - 40 * (400_000 - 40)
    assert endless.expected < long(4, 400_000, "2.37").per_node.low + 20 * SAMPLE + 48 * 400_000


def test_without_a_glibc_the_interval_has_both() -> None:
    unknown, old, new = (long(4, 40_000, glibc) for glibc in (None, "2.28", "2.41"))
    assert unknown.per_node.low < new.per_node.expected < unknown.per_node.expected < old.per_node.expected
    assert old.per_node.expected < unknown.per_node.high


def test_workers_that_persist_see_every_epoch() -> None:
    fields = {"train__batch_size": 4, "data__workers": 1, "data__samples": 80, "software": {"glibc": "2.36"}}
    one, persistent, three = (
        known(job(**fields, **more)).breakdown["workers"]
        for more in (
            {"data__epochs": 3}, {"data__persistent_workers": True},
            {"data__persistent_workers": True, "data__epochs": 3},
        )
    )  # fmt: skip
    assert one < persistent < three


def test_a_bound_is_no_less_than_what_any_smaller_batch_needs() -> None:
    fields = {"data__samples": 4_000, "software": {"glibc": "2.36"}}
    found = [known(job(**fields, train__batch_size=batch)) for batch in (1, 2, 4, 8, 16, 32)]
    top = estimate_host(job(**fields, train__batch_size=32), cuda=False, bound=True)
    assert isinstance(top, HostEstimate)
    assert found[1].breakdown["workers"] > found[-1].breakdown["workers"]  # more batches, more holes
    needs = [one.per_node for one in found]
    assert all(one.expected <= top.per_node.expected and one.high <= top.per_node.high for one in needs)


def test_the_processor_holds_the_model_that_it_trains() -> None:
    here = {
        "machine__accelerator": "cpu", "data__workers": 0, "data__sample_bytes": 8, "train__batch_size": 32,
        "model__parameters": 10**9, "model__activation_bytes": 10**6,
    }  # fmt: skip
    adam, plain = (estimate_host(job(**here, train__optimizer=name), 10**9) for name in ("adamw", "sgd"))
    assert isinstance(adam, HostEstimate)
    assert isinstance(plain, HostEstimate)
    assert adam.breakdown["model"] == 4 * 4 * 10**9
    assert plain.breakdown["model"] == 2 * 4 * 10**9
    assert adam.breakdown["activations"] == plain.breakdown["activations"] == 32 * 10**6
    assert adam.per_node.low < adam.per_node.expected < adam.per_node.high
    assert "model" not in known(job(data__workers=0, data__sample_bytes=8), 10**9).breakdown


def test_validation_workers_copy_what_they_read() -> None:
    held = {
        "data__in_memory_bytes": GIB, "data__in_memory_kind": "strings", "data__samples": 1000, "data__workers": 1,
        "data__sample_bytes": 8, "data__validation_workers": 3, "data__start_method": "spawn",
    }  # fmt: skip
    half, whole = (known(job(**held, validation__samples=samples)).per_node for samples in (500, 1000))
    assert whole.expected - half.expected == pytest.approx(3 * GIB / 2, rel=0.01)


def test_tensors_are_handed_to_spawned_workers_once() -> None:
    held = {"data__in_memory_bytes": GIB, "data__samples": None, "data__start_method": "spawn"}
    arrays, tensors = (known(job(**held, data__in_memory_kind=kind)) for kind in ("arrays", "tensors"))
    assert arrays.breakdown["copy_on_write"] == 4 * GIB
    assert "copy_on_write" not in tensors.breakdown
    assert "pickle" not in tensors.breakdown


def test_samples_that_are_copies_are_said_to_be() -> None:
    stored = {"data__in_memory_kind": "arrays", "data__samples": 1000, "data__in_memory_bytes": 1000 * SAMPLE}
    views, copies = known(job(**stored)), known(job(**stored, data__copies_samples=True))
    assert copies.breakdown["workers"] - views.breakdown["workers"] > 4 * 64 * SAMPLE
    assert copies.per_node.low > views.per_node.low


@pytest.mark.parametrize("load", sorted(COPIES))
def test_ways_of_loading(load: str) -> None:
    here = job(data__workers=0, data__sample_bytes=8, model__load=load, parallel__ranks_per_node=2)
    found = known(here, 10**9)
    assert found.breakdown.get("checkpoint", 0) == 2 * 4 * 10**9 * COPIES[load]
    cast = load == "from-pretrained-cast"  # a tensor that has the type already stays pages of its file
    assert (found.per_node.low < 2 * GIB) == (COPIES[load] == 0 or cast)


def test_pages_of_a_file_become_memory_where_they_are_cast_or_written() -> None:
    plain = {"data__workers": 0, "data__sample_bytes": 8, "model__load": "from-pretrained"}
    assert known(job(**plain), 10**9).per_node.expected < GIB
    assert known(job(**plain, software={"transformers": "4.46.2"}), 10**9).breakdown["checkpoint"] == 4 * 10**9
    assert copies(job(**plain, machine__accelerator="cpu")) == (0.0, 1.0)
    assert known(job(**plain, software={"transformers": "5.23.0"}), 10**9).per_node.expected < GIB


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


@pytest.mark.parametrize(("start", "workers"), [("fork", 0), ("spawn", 0)])
def test_an_optimizer_of_any_model_imports_and_spawned_workers_do_not(start: str, workers: int) -> None:
    here = job(data__start_method=start)
    trains, loads = (estimate_host(here, cuda=False, trains=trains) for trains in (True, False))
    assert isinstance(trains, HostEstimate)
    assert isinstance(loads, HostEstimate)
    assert trains.breakdown["base"] - loads.breakdown["base"] == round(PARTS["dynamo"])
    assert trains.breakdown["workers"] - loads.breakdown["workers"] == workers


@pytest.mark.parametrize(("given", "kept"), [(2.36, "2.36"), (2.4, "2.40"), ("2.36", "2.36")])
def test_spellings_of_glibc(given: object, kept: str) -> None:
    assert build({"software.glibc": given}).software == {"glibc": kept}


def test_a_step_on_the_processor_leaves_holes_where_workers_send_batches() -> None:
    """Half of its activations per remembered batch; larger steps cost no more, and newer C libraries keep none."""
    act = 2 * 2**20
    assert of_steps(Heap(batches=20), act, 2, EXPECTED) == 0.5 * 40 * act
    assert of_steps(Heap(batches=900), act, 2, EXPECTED) == 0.5 * PINS / 2 * act
    assert of_steps(Heap(), act, 2, EXPECTED) < of_steps(Heap(), act, 2, HIGH)
    assert of_steps(Heap(batches=20), act, 0, HIGH) == of_steps(Heap(old=False, batches=20), act, 2, HIGH) == 0
    assert of_steps(Heap(batches=20), 2**30, 2, HIGH) == of_steps(Heap(batches=20), 2**22, 2, HIGH)
    assert of_steps(Heap(batches=20), 2**30, 2, EXPECTED) == 0
