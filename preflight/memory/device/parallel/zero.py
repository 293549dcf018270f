"""DeepSpeed's ZeRO: the memory of stages 1 to 3 on a rank's GPU, and of their buckets.

Read from DeepSpeed 0.19, deepspeed/runtime/zero. stage_1_and_2.py (DeepSpeedZeroOptimizer): __init__ (the flat 16-bit
weights, the fp32 partition), setup_buckets, reduce_ipg_grads, copy_grads_in_partition, step. stage3.py
(DeepSpeedZeroOptimizer_Stage3): the bucket and the partitions' flat buffer made with the optimizer,
__avg_scatter_grads, _prepare_fp32_grad_for_sub_group. partitioned_param_coordinator.py: fetch_sub_module,
__params_to_release.
The model is cast to 16 bits as a whole: no autocast, and in addition master weights in fp32, which fp32 models get too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.tape import Tape, Token
from preflight.memory.device.parallel.edit import AddedStorage, Born, Gone, Line, TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.units import FsdpUnit, Units, shard

MASTER = 4
"""Bytes per element of master weights, of their gradients and of the optimizer's states: fp32."""
ALIGNMENT = 2
"""Elements that a rank's partition is padded to (nccl_start_alignment_factor)."""
OVERLAPPING = 2
"""Buckets of stages 1 and 2 where communication overlaps (setup_buckets)."""


class Buckets(Struct, frozen=True):
    """Bytes that a stage allocates for gradients. `bucket`: held while they are reduced; `partition`: what remains
    of them on this rank; `spare`: the copy that reducing one bucket makes; `step`: buffers of the step's beginning."""

    bucket: int
    partition: int
    spare: int
    step: tuple[int, ...]


def count(layout: ShardLayout, name: str) -> int:
    """An option's elements; for "auto", Hugging Face's integration computes them from the model's width (transformers,
    integrations/deepspeed.py, trainer_config_finalize)."""
    width = layout.hidden
    if layout.options.automatic(name) and width:
        if name == "stage3_param_persistence_threshold":
            return 10 * width
        return width * width * 9 // 10 if name == "stage3_prefetch_bucket_size" else width * width
    return layout.options.count(name) or 0


def partition(unit: FsdpUnit, ranks: int) -> int:
    """Elements of this rank's part of all trainable parameters, flattened together (stages 1 and 2)."""
    total = sum(n for n, _, trains in unit.params if trains)
    step = ALIGNMENT * ranks
    return -(-total // step) * ALIGNMENT


def gathered(units: Units, layout: ShardLayout) -> int:
    """Bytes of weights that stage 3 has whole where forward turns into backward, the persistent ones left out.

    A parameter is released after its forward unless it is used again within stage3_max_reuse_distance elements: on the
    way back those of the last half of that distance are. Then come the layer at work and the prefetched ones.
    """
    rows = [(n, size) for unit in units.all for n, size, _ in unit.params if _is_cut(size, layout)]
    everything = math.ceil(sum(n * size for n, size in rows if not _persists(n, layout)))
    width = max((int(size) for unit in units.all for _, size, _ in unit.params), default=0)
    layer = max((unit.elements for unit in (*units.layer.values(), *units.first.values())), default=0)
    reuse, ahead = count(layout, "stage3_max_reuse_distance"), count(layout, "stage3_prefetch_bucket_size")
    live = max(count(layout, "stage3_max_live_parameters"), layer)
    return min(everything, (reuse // 2 + layer + min(ahead, live)) * width)


def weights(units: Units, layout: ShardLayout) -> list[int]:
    """Bytes of each weight's storage that stays on the GPU."""
    found = []
    away = layout.offload == "parameters"
    for unit in units.all:
        for n, size, _ in unit.params:
            if layout.scheme != "zero3" or not _is_cut(size, layout):
                found.append(math.ceil(n * size))
            elif not away:
                found.append(math.ceil(_kept(n, layout) * size))
            elif _persists(n, layout):
                found.append(math.ceil(n * size))
    return found


def _is_cut(size: float, layout: ShardLayout) -> bool:
    """Whether stage 3 partitions a storage with so many bytes per element: parameters, but not their scales."""
    return size >= 1 or size == layout.packed


def _persists(elements: int, layout: ShardLayout) -> bool:
    return elements <= count(layout, "stage3_param_persistence_threshold")


def _kept(elements: int, layout: ShardLayout) -> int:
    """A parameter's elements on this rank: whole below the threshold; never fewer than a smaller one's."""
    threshold = count(layout, "stage3_param_persistence_threshold")
    return max(shard(elements, layout.shards), min(elements, threshold))


def buckets(units: Units, layout: ShardLayout, width: int) -> Buckets:
    """`width`: bytes per element of gradients."""
    o, host = layout.options, layout.offload != "none"
    everything = FsdpUnit(tuple(p for unit in units.all for p in unit.params))
    trainable = sum(n for n, _, trains in everything.params if trains)
    stage3 = layout.scheme == "zero3"
    own = everything.sharded(layout.shards, trainable=True) if stage3 else partition(everything, layout.shards)
    elements = count(layout, "reduce_bucket_size")
    overlap = o.flag("overlap_comm")
    double = OVERLAPPING if overlap and not stage3 else 1
    contiguous = bool(o.flag("contiguous_gradients")) or (host and not stage3)
    bucket = double * elements * width if contiguous else min(elements, trainable) * width
    step: tuple[int, ...] = ()
    if not host:
        group = max(sub_groups(everything, layout), default=0) if stage3 else own
        step = (group * width, group * MASTER)
    largest = max((n for n, _, trains in everything.params if trains), default=0)
    kept = 0 if host else own
    spare = min(elements, trainable) * width if layout.shards > 1 else 0
    return Buckets(bucket + (largest * width if host and not stage3 else 0), kept * width, spare, step)


def master(units: Units, layout: ShardLayout) -> list[int]:
    """Elements of the tensors that the optimizer steps over: one partition, or stage 3's sub-groups."""
    if layout.offload in ("optimizer", "parameters"):
        return []
    everything = FsdpUnit(tuple(p for unit in units.all for p in unit.params))
    if layout.scheme != "zero3":
        return [partition(everything, layout.shards)]
    return sub_groups(everything, layout)


def sub_groups(unit: FsdpUnit, layout: ShardLayout) -> list[int]:
    """Elements of stage 3's sub-groups on this rank: whole parameters until `sub_group_size` is reached, so that 0
    makes each parameter a group of its own (stage3.py, _create_fp16_sub_groups)."""
    parts = [shard(n, layout.shards) for n, _, trains in unit.params if trains]
    least = layout.options.count("sub_group_size")
    if least is None or least >= sum(parts):
        return [sum(parts)] if parts else []
    found, group = [], 0
    for elements in parts:
        group += elements
        if group >= least:
            found.append(group)
            group = 0
    return [*found, group] if group else found


def rank_tape(made: MadeLaw, units: Units, layout: ShardLayout, held: Buckets) -> Tape:
    """The tape of one rank. Stage 1 without overlap reduces after backward, from whole gradients; the others as soon as
    a gradient is there, which then lives in the bucket."""
    script = TapeEdits(made.tape)
    stage3 = layout.scheme == "zero3"
    script.front.heads[0] = [Born(gathered(units, layout) if stage3 else 0, "w", "all-gather")]
    if script.trains and not keeps_gradients(layout):
        for edit in script.edits:
            edit.rewrite = copied
        if not stage3:
            script.turn.heads[0] = [Born(held.bucket, "", "reduce bucket"), Born(held.partition, "g", "partition")]
            script.last.heads[0] = [Gone(0, script.turn), AddedStorage(1, script.turn)]
    ends: list[Line] = [Born(held.spare if script.trains else 0, "", "reduce bucket"), Gone(0, script.front)]
    script.last.tails[0] = [*ends, Gone(0, tail=True)]
    return script.done()


def keeps_gradients(layout: ShardLayout) -> bool:
    """Whether whole gradients stay until the step."""
    return layout.scheme == "zero1" and not layout.options.flag("overlap_comm") and layout.offload == "none"


def copied(token: Token, _: int) -> Sequence[Token]:
    """A gradient dies where it would be added to .grad: it has been copied into a bucket."""
    if token.kind == "+":
        return Token("d", token.at, "", token.item, token.layer, token.relative), token
    return (token,)
