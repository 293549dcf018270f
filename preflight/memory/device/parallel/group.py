"""One rank of several: its share of the weights, its tape, and what the ranks keep to talk to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import NotRegular, Tape
from preflight.memory.device.law.workload import Resolved, Storage
from preflight.memory.device.parallel import ddp, fsdp, pipeline, tensor, zero
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.rank import DeviceRank
from preflight.memory.device.parallel.units import Units, cut, units
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.values import Cause, Unknown

LENGTHS = frozenset(["b", "s", "t", "n", "m", "i"])
"""Dimensions that a rank's tape is still a function of; the others are set when it is made."""
WEIGHTS_CUT = ("fsdp", "zero3")
"""How the names of schemes begin that cut the weights themselves."""


def member(layout: ShardLayout, resolved: Resolved, laws: Laws) -> DeviceRank | Unknown:
    """One rank of a group."""
    dims = tensor.divided(resolved.all_dims, resolved.family, layout)
    if isinstance(dims, Unknown):
        return dims
    dims = pipeline.stage_dims(dims, laws.made, layout)
    quantized = resolved.setup.quantization
    if cuts_weights(layout) and quantized and not _cuts(quantized):
        return Unknown(
            f"parallel: it is not known how {layout.scheme} shards weights in {quantized.type}", Cause.not_modelled
        )
    if resolved.workload.casts_frozen and resolved.setup.peft is not None and cuts_weights(layout):
        return parts_not_known(layout)
    try:
        own = derived(laws, layout, dims)
    except NotRegular as error:
        return Unknown(
            f"parallel: the law of {resolved.name} does not hold for so few layers: {error}", Cause.not_modelled
        )
    made = pipeline.stage(laws.made, layout)
    held = units(made, dims)
    whole = tuple(param for unit in held.all for param in unit.params)
    if layout.scheme.startswith("zero"):
        return _zero(layout, own, dims, held, whole)
    if layout.scheme.startswith("fsdp"):
        return _fsdp(layout, own, dims, held)
    return _replicated(layout, own, dims, whole)


def cuts_weights(layout: ShardLayout) -> bool:
    """Whether a rank holds a part of the weights."""
    return layout.scheme.startswith(WEIGHTS_CUT) and layout.shards > 1


def parts_not_known(layout: ShardLayout) -> Unknown:
    """Why the adapters of a pipeline's model have no estimate where weights are cut. The example scripts of diffusers
    prepared the adapters alone, and later the whole model: then it is cut, and before every rank has it whole."""
    return Unknown(
        f"parallel: it is not known whether {layout.scheme} cuts the frozen model of a pipeline that adapters train",
        Cause.not_modelled,
    )


def _cuts(quantized: QuantizedWeights) -> bool:
    """Whether it is known how quantised weights are cut.

    bitsandbytes' 4 bits are a parameter (nn/modules.py, Params4bit), their scales an attribute of it. GPTQ and AWQ
    register all that they pack as buffers, which are not cut (auto_gptq, nn_modules/qlinear; awq,
    modules/linear/gemm.py); in 8 bits they take as much for an element as a parameter may.
    """
    return quantized.type == "4bit" or (quantized.type in ("gptq", "awq") and quantized.bits != 8)


def _replicated(
    layout: ShardLayout, laws: Laws, dims: Mapping[str, int], whole: Sequence[tuple[int, float, bool]]
) -> DeviceRank:
    """Every rank of the data-parallel group has everything: DDP, or tensor and pipeline parallelism alone."""
    trainable = [(n, int(size)) for n, size, trains in whole if trains]
    buckets = ddp.bucket_bytes(trainable, layout) if layout.scheme == "ddp" else []
    views = bool(buckets) and bool(layout.options.flag("gradient_as_bucket_view"))
    gone = views or layout.offload == "gradients"
    gradients = 0 if gone else sum(n * size for n, size in trainable)
    owned = () if layout.offload == "optimizer" else tuple(trainable)
    held = tuple(Storage(size, "gradients") for size in buckets)
    return DeviceRank(layout, laws, dims, tuple(whole), held, gradients, owned, ())


def _fsdp(layout: ShardLayout, laws: Laws, dims: Mapping[str, int], held: Units) -> DeviceRank:
    ways, sizes = layout.shards, fsdp.Sizes(layout)
    rows = [row for unit in held.all for row in unit.params]
    parts = [(-(-n // ways) if size >= 1 or size == layout.packed else n, size, trains) for n, size, trains in rows]
    held = cut(held, layout.packed)
    away = layout.offload == "parameters"
    if layout.defer:
        gradients = sum(
            n * (layout.reduce_bytes or layout.param_bytes or int(size))
            for unit in held.all
            for n, size, trains in unit.params
            if trains
        )
    else:
        gradients = sum(sizes.kept(unit) for unit in held.all) if layout.offload in ("none", "optimizer") else 0
    owned = () if layout.offload in ("optimizer", "parameters") else tuple((n, int(s)) for n, s, t in parts if t)
    return DeviceRank(layout, laws, dims, () if away else tuple(parts), (), gradients, owned, ())


def _zero(
    layout: ShardLayout, laws: Laws, dims: Mapping[str, int], held: Units, whole: Sequence[tuple[int, float, bool]]
) -> DeviceRank:
    width = max((int(size) for _, size, trains in whole if trains), default=2)
    buckets = zero.buckets(held, layout, width)
    rows = tuple((size, 1, False) for size in zero.weights(held, layout))
    owned = tuple((n, zero.MASTER) for n in zero.master(held, layout))
    kept = [Storage(n * size, "optimizer") for n, size in owned if layout.scheme != "zero3" or width != zero.MASTER]
    gradients = buckets.partition
    if layout.scheme == "zero3":
        kept += [Storage(buckets.bucket, "gradients"), Storage(buckets.partition, "gradients")]
        gradients = 0
    step = buckets.step
    if zero.keeps_gradients(layout):
        gradients = sum(n * int(size) for n, size, trains in whole if trains)
        step = (*step, buckets.bucket, buckets.partition)
    return DeviceRank(layout, laws, dims, rows, tuple(k for k in kept if k.nbytes), gradients, owned, step)


# --- derived tapes ----------------------------------------------------------------------------------------------------

_LAWS: BoundedCache[Laws] = BoundedCache(64)


def derived(laws: Laws, layout: ShardLayout, dims: Mapping[str, int]) -> Laws:
    """The derived laws, kept while the same job is looked at with other batches and lengths."""
    fixed = tuple(sorted((name, value) for name, value in dims.items() if name not in LENGTHS))

    def made() -> Laws:
        tape = _both(laws.made, layout, dims)
        return laws if tape is laws.made.tape else Laws.of(MadeLaw(tape, laws.made.parameters), laws.shipped)

    return _LAWS.get(laws, (repr(layout), fixed), made)


def _both(whole: MadeLaw, layout: ShardLayout, dims: Mapping[str, int]) -> Tape:
    """The rank's tape, and the one that it has at batch 1."""
    one = whole.tape.one
    if one is None:
        return _tape(whole, layout, dims)
    alone = replace(whole, tape=replace(whole.tape, one=None))
    tape, other = _tape(alone, layout, dims), _tape(replace(whole, tape=one), layout, dims)
    return whole.tape if tape is alone.tape and other is one else replace(tape, one=other)


def _tape(whole: MadeLaw, layout: ShardLayout, dims: Mapping[str, int]) -> Tape:
    made = pipeline.stage(whole, layout)
    here = units(made, dims)
    if layout.scheme.startswith("fsdp"):
        tape = fsdp.rank_tape(made, cut(here, layout.packed), layout)
    elif layout.scheme.startswith("zero"):
        width = max((int(size) for unit in here.all for _, size, trains in unit.params if trains), default=2)
        tape = zero.rank_tape(made, here, layout, zero.buckets(here, layout, width))
    else:
        tape = ddp.rank_tape(made, layout)
    tape = tensor.rank_tape(MadeLaw(tape, made.parameters), layout)
    extra = _gathered(whole, layout)
    if layout.pipeline > 1 and any(item.phase == "backward" for item in tape.items):
        extra = _plus(extra, _times(pipeline.saved(tape, dims), pipeline.in_flight(layout) - 1))
    return pipeline.with_others(tape, extra)


def _gathered(made: MadeLaw, layout: ShardLayout) -> Size:
    if layout.tensor == 1 or not layout.sequence_parallel:
        return ()
    stored = max((int(size) for _, size, _ in made.parameters.outside), default=4)
    return tensor.gathered_input(layout.param_bytes or stored)


def _times(counts: Counter[Size], factor: int) -> Size:
    """`factor` times the sum of sizes."""
    total: dict[tuple[tuple[str, int], ...], int | float] = {}
    for size, count in counts.items():
        for coefficient, monomial in size:
            total[monomial] = total.get(monomial, 0) + coefficient * count * factor
    return tuple((c, m) for m, c in total.items() if c)


def _plus(one: Size, other: Size) -> Size:
    return _times(Counter({one: 1, other: 1}) if one != other else Counter({one: 2}), 1)
