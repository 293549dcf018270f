"""Weights in few bits under schemes that cut weights: their bytes, not their elements, and never a figure by guess."""

from __future__ import annotations

import math

import pytest

from preflight.memory.device.parallel import DeviceRank
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.options import ShardingOptions
from preflight.memory.device.parallel.units import FsdpUnit, Units, cut
from preflight.memory.device.parallel.zero import buckets, master, sub_groups
from preflight.memory.device.prepare import prepare
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Unknown


def job(ranks: int, kind: str = "nf4", **more: object) -> Job:
    return build({
        "model.name": "NousResearch/Llama-2-7b-hf", "task": "causal-lm", "train.batch_size": 1, "train.seq_len": 128,
        "train.precision": "bf16-mixed", "train.peft.method": "lora", "train.quantization.type": kind,
        "train.quantization.compute_dtype": "bf16", "parallel.strategy": "fsdp", "parallel.gpus_per_node": ranks,
        "parallel.ranks_per_node": ranks, **{name.replace("__", "."): value for name, value in more.items()},
    })  # fmt: skip


def rank(wanted: Job) -> DeviceRank:
    found = prepare(wanted, tracing=SHIPPED_ONLY)
    assert not isinstance(found, Unknown), found
    return found.rank


@pytest.mark.parametrize("kind", ["int8", "hqq", "fp8", "eetq", "torchao-int8"])
@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_what_nobody_says_how_to_cut_is_unknown(kind: str, strategy: str) -> None:
    found = prepare(job(4, kind, parallel__strategy=strategy), tracing=SHIPPED_ONLY)
    assert isinstance(found, Unknown)
    assert kind in found.words or "law" in found.words


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
def test_four_bits_are_cut_and_their_scales_are_not(version: int, precision: str) -> None:
    options = {"fsdp_version": version}
    alone, one = (rank(job(n, train__precision=precision, parallel__options=options)) for n in (1, 4))
    for each, ways in ((0.5, 4), (1 / 16, 1)):
        whole, mine = (sum(n for n, size, _ in found.rows if size == each) for found in (alone, one))
        assert whole > 6e9
        assert mine == pytest.approx(whole / ways, rel=1e-4)


def test_gathered_weights_are_as_large_as_they_are_stored() -> None:
    """A layer of Llama 2 has 202 million packed weights: 97 MiB in 4 bits, which mixed precision does not cast."""
    made = rank(job(4, parallel__options={"fsdp_version": 1}))
    tape, dims = made.laws.made.tape, made.dims
    values = tape.values(dims)
    at = tape.modules.index("unsharded weights")
    sizes = {
        values[t.at] for i in tape.items if i.stack for b in i.blocks for t in b if t.kind == "b" and t.where == at
    }
    assert 96 * 2**20 < max(sizes) < 100 * 2**20


def test_packed_weights_are_cut_by_bytes_and_never_cast() -> None:
    unit = FsdpUnit(((1000, 0.5, False), (1000, 1 / 16, False), (10, 4, True)))
    held = cut(Units(unit, {}, {}, {}), 0.5).root
    assert held.params == ((500, 1, False), (10, 4, True))
    assert held.part(4, 2) == 125 + 3 * 2
    assert held.flat(4) == math.ceil(512 / 4) + 3 * 4
    assert cut(Units(unit, {}, {}, {}), None).root.params == ((10, 4, True),)


@pytest.mark.parametrize(("size", "groups"), [
    (0, [10, 20, 5]), (1, [10, 20, 5]), (15, [30, 5]), (30, [30, 5]), (35, [35]), (10**30, [35]), (None, [35]),
])  # fmt: skip
def test_sub_groups_are_whole_parameters(size: int | None, groups: list[int]) -> None:
    unit = FsdpUnit(((40, 2, True), (99, 2, False), (80, 2, True), (20, 2, True)))
    layout = ShardLayout("zero3", 4, 4, 4, options=ShardingOptions({"sub_group_size": size}))
    assert sub_groups(unit, layout) == groups
    units = Units(unit, {}, {}, {})
    assert master(units, layout) == groups
    assert buckets(units, layout, 2).step == (max(groups) * 2, max(groups) * 4)
