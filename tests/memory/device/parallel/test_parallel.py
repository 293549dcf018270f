"""Arithmetic of sharding and buckets, and what every layout of a job must satisfy."""

from __future__ import annotations

import random

import pytest
import shipped as device
from shipped import prepare

from preflight.machines.gpus import find_gpu
from preflight.memory.device.families import FAMILIES
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law
from preflight.memory.device.parallel import ddp, layouts, nccl, units, zero
from preflight.memory.device.parallel.edit import Born, Gone, TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.options import ShardingOptions
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

GIB = 2**30
SMALL: dict[str, object] = {
    "model.name": "bert-base-uncased", "train.batch_size": 4, "train.seq_len": 128, "train.precision": "bf16-mixed",
}  # fmt: skip


def job(strategy: str = "none", ranks: int = 1, **more: object) -> Job:
    fields = {k.replace("__", "."): v for k, v in more.items()}
    return build({**SMALL, "parallel.strategy": strategy, "parallel.gpus_per_node": ranks,
                  "parallel.ranks_per_node": ranks, **fields})  # fmt: skip


def ready(strategy: str = "none", ranks: int = 1, **more: object) -> PreparedJob:
    found = prepare(job(strategy, ranks, **more))
    assert not isinstance(found, Unknown), found
    return found


def estimate(strategy: str = "none", ranks: int = 1, **more: object) -> DeviceEstimate:
    found = device.estimate(job(strategy, ranks, **more), find_gpu("A100 80GB"))
    assert isinstance(found, DeviceEstimate), found
    return found


@pytest.mark.parametrize("seed", range(20))
def test_an_equal_part_is_at_most_a_row_less_than_the_largest_chunk(seed: int) -> None:
    """FSDP2 cuts along dimension 0 (fully_shard/_fsdp_param.py, _init_sharded_param); laws count equal parts."""
    torch = pytest.importorskip("torch")
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 40) for _ in range(rng.randint(1, 3)))
    ranks = rng.randint(2, 9)
    largest = torch.chunk(torch.empty(shape, device="meta"), ranks, dim=0)[0].numel()
    elements = torch.Size(shape).numel()
    equal = units.shard(elements, ranks)
    assert equal <= largest <= equal + elements // shape[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_flat_shard_is_what_fsdp1_cuts(seed: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    rng = random.Random(seed)
    sizes = [rng.randint(1, 500) for _ in range(rng.randint(1, 6))]
    ranks = rng.randint(2, 9)
    aligned = [-(-n // 4) * 4 for n in sizes]  # 16 bytes are 4 elements of fp32
    part, _ = FlatParamHandle._get_shard(torch.empty(sum(aligned)), 0, ranks)
    assert units.flat_shard(sizes, ranks, 4) == part.numel()


@pytest.mark.parametrize("seed", range(30))
def test_buckets_are_torchs(seed: int) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    rng = random.Random(seed)
    params = [(rng.randint(1, 3000), rng.choice([2, 4, 4])) for _ in range(rng.randint(1, 40))]
    limits = rng.choice([[1000, 9000], [5000], [400, 4000, 8000], [10**9]])
    kinds = {2: torch.float16, 4: torch.float32}
    tensors = [torch.empty(n, dtype=kinds[size]) for n, size in params]
    expected, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
    assert ddp.bucket_sizes(params, limits) == [list(each) for each in expected]


def test_ddp_copies_every_gradient_once() -> None:
    alone, several = ready(), ready("ddp", 4)
    assert several.storage_bytes == alone.gradients == several.gradients
    sizes = [each.nbytes for each in several.rank.storages]
    assert sizes[0] >= ddp.FIRST_BUCKET
    assert all(size >= 25 * 2**20 for size in sizes[1:-1])
    views = ready("ddp", 4, parallel__options={"gradient_as_bucket_view": True})
    assert (views.storage_bytes, views.gradients) == (alone.gradients, 0)
    whole = [
        estimate("ddp", 4, parallel__options=o).requested.expected for o in ({}, {"gradient_as_bucket_view": True})
    ]
    assert whole[0] - whole[1] > 0.9 * alone.gradients


def test_one_rank_has_nothing_to_reduce() -> None:
    assert estimate("ddp", 1).requested == estimate().requested


@pytest.mark.parametrize(("strategy", "options"), [
    ("fsdp", {"fsdp_version": 2, "param_dtype": "bf16", "reduce_dtype": "bf16"}),
    ("fsdp", {"fsdp_version": 1, "param_dtype": "bf16", "reduce_dtype": "fp32"}),
    ("fsdp", {"fsdp_version": 2, "param_dtype": "fp32", "reshard_after_forward": False}),
    ("zero1", {}), ("zero2", {}), ("zero3", {}),
])  # fmt: skip
def test_more_ranks_never_take_more(strategy: str, options: dict[str, object]) -> None:
    peaks = [ready(strategy, n, parallel__options=options) for n in (2, 4, 8, 16)]
    states = [one.weights + one.storage_bytes + one.gradients + sum(one.optimizer.states) for one in peaks]
    assert states == sorted(states, reverse=True)
    bucket = 2 * 500_000_000 if strategy in ("zero2", "zero3") else 0
    assert states[0] < 16 * count(peaks[0]) + bucket


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_grows_and_suffices(seed: int) -> None:
    rng = random.Random(f"parallel {seed}")
    strategy = ["ddp", "fsdp", "zero1", "zero2", "zero3", "fsdp", "zero2", "ddp"][seed]
    more: dict[str, object] = {
        "model__name": rng.choice(["bert-base-uncased", "gpt2", "roberta-large"]),
        "train__batch_size": rng.randint(1, 32), "train__seq_len": rng.randint(16, 500),
        "train__grad_accum": rng.choice([1, 4]), "parallel__pipeline": 2 if seed == 7 else 1,
        "parallel__offload": "optimizer" if seed == 6 else "none",
    }  # fmt: skip
    bound = device.bound(job(strategy, 4, **more), None)
    full = device.estimate(job(strategy, 4, **more), None)
    assert bound is not None
    assert isinstance(full, DeviceEstimate), full
    assert full.allocated.expected + full.breakdown["context"] <= bound[0]
    for field in ("train__batch_size", "train__seq_len", "train__grad_accum"):
        grown = device.bound(job(strategy, 4, **{**more, field: int(str(more[field])) + 1}), None)
        assert grown is not None
        assert all(after >= before for after, before in zip(grown, bound, strict=True)), field


def test_what_is_not_stated_widens_the_interval() -> None:
    stated = estimate("fsdp", 8, parallel__options={"fsdp_version": 2, "param_dtype": "bf16", "reduce_dtype": "bf16"})
    left_open = estimate("fsdp", 8)
    assert left_open.process.expected == stated.process.expected
    assert left_open.process.high > stated.process.high
    assert any("FSDP's version is not stated" in note for note in left_open.notes)


@pytest.mark.parametrize(("fields", "reason"), [
    ({"parallel__nodes": None}, "parallel.nodes"),
    ({"parallel__tensor": 3}, "4 ranks cannot be cut"),
    ({"parallel__tensor": 2}, "parallel.tensor: the law of bert"),
    ({"parallel__tensor": None}, "parallel.tensor is not known"),
    ({"parallel__offload": "parameters"}, "ddp keeps its weights"),
    ({"parallel__options": {"bucket_cap_mb": "many"}}, "bucket_cap_mb: 'many'"),
    ({"parallel__options": {"no_such": 1}}, "no_such"),
])  # fmt: skip
def test_unknown_says_why(fields: dict[str, object], reason: str) -> None:
    found = prepare(job("ddp", 4, **fields))
    assert isinstance(found, Unknown)
    assert reason in found.words


# --- DeepSpeed's arithmetic -------------------------------------------------------------------------------------------


def count(one: PreparedJob) -> int:
    return sum(n for n, _, _ in one.parameters)


def test_stages_keep_what_the_paper_says() -> None:
    """2 + 2 + 12 bytes per parameter, of which stage 1 shards 12, stage 2 also 2, stage 3 all (Rajbhandari et al.)."""
    ranks = 8
    for stage, expected in ((1, 2 + 2 + 12 / ranks), (2, 2 + (2 + 12) / ranks), (3, 16 / ranks)):
        options = {"reduce_bucket_size": 0, "stage3_param_persistence_threshold": 0}
        one = ready(f"zero{stage}", ranks, parallel__options=options)
        states = one.weights - one.buffers + one.storage_bytes + one.gradients + sum(one.optimizer.states)
        assert states == pytest.approx(expected * count(one), rel=1e-3), stage


def test_a_bucket_has_its_size_whatever_the_model() -> None:
    small = ready("zero3", 2, parallel__options={"reduce_bucket_size": 1_000_000})
    usual = ready("zero3", 2)
    assert usual.storage_bytes - small.storage_bytes == 2 * (500_000_000 - 1_000_000)
    square = ready("zero3", 2, parallel__options={"reduce_bucket_size": "auto"})
    assert square.storage_bytes - small.storage_bytes == 2 * (768 * 768 - 1_000_000)


def test_offloading_on_one_gpu_leaves_weights_and_buffers() -> None:
    one = ready("zero2", 1, parallel__offload="optimizer")
    assert one.weights - one.buffers == 2 * count(one)
    assert (one.storage_bytes, one.gradients, sum(one.optimizer.states)) == (0, 0, 0)
    peak = one.laws.plain.peak(one.dims)
    assert peak.bytes > 2 * 500_000_000  # the bucket


def test_gathered_weights_of_stage_3_follow_the_reuse_distance() -> None:
    made = ready("zero3", 4, model__name="gpt2-xl", train__seq_len=128)
    here = units.units(made.laws.made, made.dims)
    few = {"stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
    layouts_ = [ShardLayout("zero3", 4, 4, 4, options=ShardingOptions(o)) for o in (few, {})]
    least, usual = (zero.gathered(here, each) for each in layouts_)
    assert least == 2 * max(unit.elements for unit in here.layer.values())
    assert least < usual < 2 * count(made)


@pytest.mark.parametrize("strategy", ["fsdp", "zero3", "ddp"])
@pytest.mark.parametrize("model", ["microsoft/deberta-v3-base", "bert-base-uncased", "gpt2"])
def test_what_only_dies_layer_by_layer_is_no_pass_through_the_layers(strategy: str, model: str) -> None:
    """A list of hidden states, autocast's weight cache: deaths in forward, in the order of the layers or against it."""
    estimate(strategy, 8, model__name=model)


def test_every_layer_is_gathered_once_on_the_way_forward() -> None:
    rank = ready("fsdp", 8).rank
    tape = rank.laws.made.tape
    values = tape.values(rank.dims)
    passes = [item for item in tape.items if item.stack is not None and item.phase == "forward"]
    assert len(passes) == 2  # the layers, and the end of autocast, where casts that it kept would die
    gathered = [
        sum(token.kind == "b" and values[token.at] > 0 for block in item.blocks for token in block
            if token.kind == "b" and tape.modules[token.where] == "unsharded weights")
        for item in passes
    ]  # fmt: skip
    assert gathered == [5, 0]


# --- tensor and pipeline ----------------------------------------------------------------------------------------------


def test_tensor_parallelism_divides_what_has_heads_widths_and_vocabulary() -> None:
    t5 = {"model__name": "t5-base", "train__target_len": 64}
    alone, cut = ready(**t5), ready("none", 4, parallel__tensor=4, **t5)
    norms = sum(n for n, _, _ in alone.parameters if n == 768)
    bias = sum(n for n, _, _ in alone.parameters if n == 32 * 12)
    assert cut.weights == 4 * ((count(alone) - norms - bias) // 4 + norms + bias // 4) + cut.buffers
    assert cut.laws.plain.peak(cut.dims).bytes < alone.laws.plain.peak(alone.dims).bytes


def test_a_stage_has_its_layers_and_the_micro_batches_in_flight() -> None:
    one = ready("ddp", 4, parallel__pipeline=4, train__grad_accum=8)
    alone = ready(train__grad_accum=8)
    (last,) = one.peers
    assert one.dims["L"] == last.dims["L"] == alone.dims["L"] // 4
    assert one.weights < 0.5 * alone.weights
    single = ready("ddp", 4, parallel__pipeline=4)
    more = one.laws.plain.peak(one.dims).bytes - single.laws.plain.peak(single.dims).bytes
    assert more > 0
    fewer = ready("ddp", 4, parallel__pipeline=4, train__grad_accum=2)
    three = fewer.laws.plain.peak(fewer.dims).bytes - single.laws.plain.peak(single.dims).bytes
    assert more == 3 * three  # four in flight instead of one, or two


def test_ranks_must_fill_stages_and_shares() -> None:
    found = layouts(job("ddp", 16, parallel__tensor=2, parallel__pipeline=2))
    assert not isinstance(found, Unknown)
    assert {(one.data, one.tensor, one.pipeline) for one in found.ranks} == {(4, 2, 2)}


# --- NCCL and tapes ---------------------------------------------------------------------------------------------------


def test_nccl_buffers_are_nothing_alone_and_add_up() -> None:
    assert nccl.buffers(job(), None) == (0, 0, 0)
    one, several = nccl.buffers(job("ddp", 8), None), nccl.buffers(job("ddp", 8, parallel__pipeline=2), None)
    assert one[0] < one[1] < one[2] < several[2]
    assert nccl.connection_bytes() == 512 * 2**10 + 4800 * 2**10 + 4 * 2**20


@pytest.mark.parametrize("name", ["bert", "t5", "clip", "whisper"])
def test_writing_into_a_tape_leaves_the_rest_of_it(name: str) -> None:
    """A storage that lives throughout raises every moment by its size, and nothing else changes."""
    keys = [key for key in store.keys(name) if " train " in key]
    made = store.load(store.LawKey(name, keys[0]))
    assert made is not None
    dims = dict.fromkeys([*FAMILIES[name].named, *FAMILIES[name].depths.values()], 7)
    script = TapeEdits(made.tape)
    script.front.heads[0] = [Born(1000, "w", "test")]
    for edit in script.edits:
        for block in range(len(edit.item.blocks)):
            edit.heads[block] = [Born(0, "w", "test"), Gone(0)]
    script.last.tails[0] = [Gone(0, script.front)]
    edited = script.done()
    for accumulating in (False, True):
        before, after = Law(made.tape, accumulating).peak(dims), Law(edited, accumulating).peak(dims)
        assert after.bytes == before.bytes + 1000
        assert after.parts["weights"] == 1000
        assert (after.phase, after.where) == (before.phase, before.where)


def test_a_model_that_zero_cuts_on_the_gpu_is_whole_there_first() -> None:
    """DeepSpeed moves a model that was not made under deepspeed.zero.Init to the GPU as it is, and cuts it there."""
    made = ready("zero3", 4)
    late = ready("zero3", 4, parallel__options={"zero3_init_flag": False})
    whole = sum(round(n * each) for n, each, _ in made.parameters)
    assert made.whole_checkpoint == 0
    assert late.whole_checkpoint == whole - late.rank.weights
