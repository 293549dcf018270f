"""Layouts of a parallel job: how many ranks share the data, the layers and the matrices, and by which scheme."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device.parallel.options import ShardingOptions, WrongOption
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown, missing


class ShardLayout(Struct, frozen=True):
    """One layout, with every setting decided.

    `scheme`: none, ddp, fsdp1, fsdp2, zero1, zero2 or zero3; `offload`: none, gradients, optimizer or parameters.
    `data`: ranks that see different batches; `shards`: how many of them share one copy of the states. `defer`:
    micro-batches but the last leave their gradients unreduced (no_sync). `param_bytes`: bytes per element of the
    weights while they are whole, where they are cast (None: as they are stored); `reduce_bytes`: of gradients while
    they are reduced (None: as they are computed). `last`: the last stage of a pipeline is meant, not its first.
    """

    scheme: str = "none"
    ranks: int = 1
    data: int = 1
    shards: int = 1
    tensor: int = 1
    pipeline: int = 1
    offload: str = "none"
    accumulates: int = 1
    defer: bool = False
    reshard: bool = True
    prefetch: bool = True
    param_bytes: int | None = None
    reduce_bytes: int | None = None
    sequence_parallel: bool = False
    whole_vocabulary: bool = False
    last: bool = False
    options: ShardingOptions = field(default_factory=lambda: ShardingOptions({}))
    hidden: int | None = None
    """The model's width, once it is known."""
    packed: float | None = None
    """Bytes per element of packed weights that are parameters, and so are cut by their bytes and cast to nothing
    (bitsandbytes in 4 bits). Whatever else takes a fraction of a byte per element is no parameter: every rank has it
    whole."""

    @property
    def alone(self) -> bool:
        """Whether a rank runs the step as if there were no others."""
        return self.scheme == "none" and self.tensor * self.pipeline == 1

    @property
    def cut_late(self) -> bool:
        """Whether the whole model is on each GPU before it is cut: a model that was not made under deepspeed.zero.Init
        is moved there as it is (deepspeed/runtime/engine.py, _configure_distributed_model: `self.module.to`)."""
        return self.scheme == "zero3" and self.options.flag("zero3_init_flag") is False

    @property
    def sharded(self) -> bool:
        """Whether a rank keeps less than the whole model's states."""
        return self.scheme.startswith(("fsdp", "zero")) or self.tensor > 1 or self.pipeline > 1

    @property
    def groups(self) -> int:
        """Communicators in addition to the default one: one for each of several combined kinds of parallelism."""
        ways = (self.data > 1) + (self.tensor > 1) + (self.pipeline > 1) + (1 < self.shards < self.data)
        return max(0, ways - 1) + (ways > 0)


class Layouts(Struct, frozen=True):
    """`ranks`: the ranks of the expected layout that may be the fullest (a pipeline's first and last stage).
    `alternatives`: layouts that are possible too, since settings are not stated; they widen the interval."""

    ranks: tuple[ShardLayout, ...]
    alternatives: tuple[ShardLayout, ...] = ()
    notes: tuple[str, ...] = ()


def layouts(job: Job) -> Layouts | Unknown:
    """The layouts of a job; Unknown for a setting that is not known."""
    p = job.parallel
    if p.strategy is None:
        return missing("parallel.strategy")
    try:
        options = ShardingOptions(p.options)
    except WrongOption as error:
        return Unknown(str(error), Cause.invalid)
    for name, value in (("tensor", p.tensor), ("pipeline", p.pipeline), ("offload", p.offload)):
        if value is None:
            return missing(f"parallel.{name}")
    tensor, pipeline, offload = p.tensor or 1, p.pipeline or 1, p.offload or "none"
    if p.strategy == "none" and tensor * pipeline == 1:
        return _alone(offload, options)
    if p.nodes is None or (p.gpus_per_node is None and p.ranks_per_node is None):
        return Unknown(
            "parallel.nodes or parallel.gpus_per_node is not known",
            Cause.not_set,
            ("parallel.nodes", "parallel.gpus_per_node"),
        )
    ranks = p.nodes * max(p.ranks_per_node or 1, p.gpus_per_node or 1)
    if ranks % (tensor * pipeline):
        return Unknown(
            f"{ranks} ranks cannot be cut into parallel.tensor {tensor} x parallel.pipeline {pipeline}",
            Cause.not_possible,
        )
    data = ranks // (tensor * pipeline)
    shards = min(options.count("shard_group") or data, data)
    base = ShardLayout(
        p.strategy, ranks, data, shards, tensor, pipeline, offload, job.train.grad_accum or 1, options=options
    )
    return _with_scheme(job, base)


def _alone(offload: str, options: ShardingOptions) -> Layouts | Unknown:
    if offload == "parameters":
        return Unknown("parallel.offload parameters: weights on the host need FSDP or ZeRO-3", Cause.not_possible)
    return Layouts((ShardLayout(offload=offload, options=options),))


def _with_scheme(job: Job, base: ShardLayout) -> Layouts | Unknown:
    if base.scheme == "fsdp":
        found = _fsdp(job, base)
    elif base.scheme.startswith("zero") or base.offload == "none":
        found = Layouts((base,))
    elif base.offload == "parameters":
        return Unknown(f"parallel.offload parameters: {base.scheme} keeps its weights on the GPU", Cause.not_possible)
    else:
        found = Layouts((base,))
    return _cut(found)


def _fsdp(job: Job, base: ShardLayout) -> Layouts:
    """FSDP's version, what it casts to and whether micro-batches reduce are often said nowhere: each is then another
    layout. Expected are version 2, whose place version 1 is giving up; the policy of accelerate (weights and
    reduction in the precision of the mixed training); reducing after every micro-batch, as without no_sync."""
    options, precision = base.options, job.train.precision or "fp32"
    mixed = precision.endswith("-mixed")
    version = options.count("fsdp_version")
    param = options.dtype("param_dtype") or (2 if mixed else None)
    reduce = options.dtype("reduce_dtype") or param
    first = replace(
        base,
        scheme=f"fsdp{version or 2}",
        reshard=bool(options.flag("reshard_after_forward")),
        prefetch=options.prefetch() != "none",
        param_bytes=param,
        reduce_bytes=reduce,
        defer=bool(options.flag("no_sync")),
    )
    alternatives: list[ShardLayout] = []
    notes: list[str] = []
    if version is None:
        alternatives.append(replace(first, scheme="fsdp1"))
        notes.append("FSDP's version is not stated: 2 is assumed, and the interval also covers 1")
    if mixed and not options.states("param_dtype"):
        alternatives.append(replace(first, param_bytes=None, reduce_bytes=None))
        notes.append("FSDP's param_dtype is not stated: the interval also covers gathering in fp32")
    elif not options.states("reduce_dtype") and (param == 2 or precision in ("bf16", "fp16")):
        alternatives.append(replace(first, reduce_bytes=4))
    if base.accumulates > 1 and not options.states("no_sync"):
        alternatives.append(replace(first, defer=True))
        notes.append("whether micro-batches keep unreduced gradients (no_sync) is not stated: the interval covers both")
    return Layouts((first,), tuple(alternatives), tuple(notes))


def _cut(found: Layouts) -> Layouts:
    """Both ends of a pipeline; what tensor parallelism leaves open."""
    ranks, alternatives, notes = found.ranks, found.alternatives, found.notes
    first = ranks[0]
    if first.tensor > 1:
        options = first.options
        parallel_loss, sequence = options.flag("loss_parallel"), options.flag("sequence_parallel")
        ranks = tuple(
            replace(
                one, whole_vocabulary=not (parallel_loss or parallel_loss is None), sequence_parallel=bool(sequence)
            )
            for one in ranks
        )
        if parallel_loss is None:
            alternatives += tuple(replace(one, whole_vocabulary=True) for one in ranks)
            notes += ("whether every rank computes all logits (loss_parallel) is not stated: the interval covers both",)
        if sequence is None:
            alternatives += tuple(replace(one, sequence_parallel=True) for one in ranks)
            notes += ("sequence parallelism is not stated: the interval covers both",)
    if first.pipeline > 1:
        ranks += tuple(replace(one, last=True) for one in ranks)
        alternatives += tuple(replace(one, last=True) for one in alternatives)
    return Layouts(ranks, alternatives, notes)


def kept(layout: ShardLayout) -> tuple[float, float, float]:
    """Shares of all weights, gradients and optimizer states that one rank keeps, for a model that has no law (the
    table of stages in Rajbhandari et al., 2020, figure 1)."""
    cut = 1 / (layout.tensor * layout.pipeline)
    share = cut / layout.shards
    zero, away = layout.scheme.startswith("zero"), layout.offload
    whole = layout.scheme == "zero3" or layout.scheme.startswith("fsdp")
    weights = 0.0 if away == "parameters" else share if whole else cut
    left = ("gradients", "optimizer", "parameters") if zero else ("gradients", "parameters")
    gradients = 0.0 if away in left else share if whole or layout.scheme == "zero2" else cut
    states = 0.0 if away in ("optimizer", "parameters") else share if whole or zero else cut
    return weights, gradients, states
