"""The values with which a field that is not known well may take the most, or the least, and the numbers behind them.

The worst value of a field is in `WORST`, the least in `LEAST`. A number has no worst: one that is `BEYOND` times larger
stands for it, and for a length the positions of the model where it has a table of them. Any other field, a model's name
say, has no worst value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from preflight.memory.device.positions import longest
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.job import Job
from preflight.vocabulary.spelling import kind_of
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.values import thawed

Changes: TypeAlias = "Mapping[str, object]"

WORST: Mapping[str, tuple[object, ...]] = {
    "train.precision": ("fp32", "bf16-mixed"),  # autocast keeps 16-bit copies beside the weights
    "train.weights_dtype": (None, "fp32"),
    "train.tf32": (True,),
    "train.quantization.type": ("none",),
    "train.quantization.double_quant": (False,),
    "train.quantization.compute_dtype": ("fp32",),
    "train.quantization.upcast_rest": (True,),
    "train.optimizer": ("adamw",),
    "train.optimizer_impl": ("foreach",),
    "train.gradient_checkpointing": (False,),
    "train.reentrant": (False,),
    "train.attention": ("eager",),
    "train.compile": (False, True),
    "train.peft.method": (None,),
    "train.peft.targets": ("all-linear",),
    "train.peft.dropout": (0.1,),
    "train.peft.options": ({},),
    "train.peft.dtype": ("fp32",),
    "train.frozen": ([],),
    "train.grad_accum": (2,),  # gradients live through the next forward; more steps take no more
    "train.sequences_per_sample": (2,),  # both answers of a pair
    "train.copies.reference": (1,),
    "train.copies.ema": (1,),
    "train.outputs_kept": ("loop",),
    "train.outputs_cast": (True,),
    "train.loss": ("full",),
    "train.fused_kernels": ([],),
    "train.sequences": ("bound", "dynamic"),
    "train.optimizer_in_backward": (False,),
    "train.activation_offload": (False,),
    "train.saves": ("gathered",),
    "train.resumes": ("kept",),
    "train.saved_as": ("fp32",),
    "train.channels_last": (False, True),
    "train.cudnn_benchmark": (True,),
    "train.empty_cache_every": (None,),
    "train.allocator.expandable_segments": (False,),
    "train.allocator.max_split_size_mb": (None,),
    "train.allocator.garbage_collection_threshold": (None,),
    "validation.accumulates_logits": (True,),
    "validation.eval_accumulation": (None,),
    "validation.generates": (True,),
    "validation.loss": (True,),
    "data.workers": (16,),  # as many as a GPU has cores on large nodes
    "data.prefetch": (4,),
    "data.persistent_workers": (True,),
    "data.pin_memory": (True,),
    "data.start_method": ("spawn",),
    "data.shuffle": (True,),
    "data.in_memory_kind": ("objects", "strings"),
    "data.samples_from": ("numpy", "torch"),
    "data.copies_samples": (True,),
    "data.validation_overlaps": (True,),
    "data.validation_workers": (16,),
    "data.validation_persistent": (True,),
    # with DDP, buckets of gradients are beside the gradients; on one GPU, sharding has copies and nothing to split
    "parallel.strategy": ("none", "ddp", "fsdp", "zero1", "zero2", "zero3"),
    "parallel.nodes": (1,),
    "parallel.gpus_per_node": (1,),
    "parallel.tensor": (1,),
    "parallel.pipeline": (1,),
    "parallel.options": ({},),
    "parallel.offload": ("none", "optimizer", "parameters"),  # none: most on the GPU; the others: on the host
}
"""The values of a field with which a job takes the most memory, of the GPU or of the host. Most are the defaults."""

NODE = 8
"""GPUs of a node of a cluster, where the number is in a file that was not read."""

LEAST: Mapping[str, object] = {
    "train.precision": "bf16", "train.weights_dtype": "bf16", "train.quantization.type": "nf4",
    "train.optimizer": "sgd", "train.gradient_checkpointing": True, "train.attention": "flash",
    "train.reentrant": True,
    "train.peft.method": "lora", "train.loss": "fused", "train.outputs_kept": "no", "train.optimizer_in_backward": True,
    "train.outputs_cast": False,
    "train.activation_offload": True, "train.saves": "streamed", "train.resumes": "no", "train.saved_as": None,
    "train.compile": False, "train.copies.reference": 0, "train.copies.ema": 0, "train.sequences_per_sample": 1,
    "train.image_size": 32, "train.vocab_size": 1, "train.text_len": 1, "train.target_len": 1, "train.images": 0,
    "train.peft.r": 1, "train.grad_accum": 1,
    "validation.batch_size": None, "validation.seq_len": 1, "validation.samples": 1, "validation.beams": 1,
    "validation.accumulates_logits": False, "validation.generates": False, "validation.max_new_tokens": 1,
    "parallel.offload": "parameters", "parallel.tensor": NODE, "parallel.pipeline": NODE, "parallel.trials_per_gpu": 1,
    "data.workers": 0, "data.prefetch": 1, "data.persistent_workers": False, "data.pin_memory": False,
    "data.start_method": "fork", "data.shuffle": False, "data.validation_workers": None,
    "data.validation_persistent": False,
    "data.validation_overlaps": False, "data.in_memory_bytes": 0, "data.in_memory_kind": "mapped",
    "data.worker_bytes": 0, "data.sample_bytes": 1, "data.samples": 1, "parallel.ranks_per_node": 1,
}  # fmt: skip
"""The value of a field with which a job takes the least memory: the opposite of `WORST`, for fields that the estimate
gives a value where they have none."""

DDP = {"parallel.ranks_per_node": 2, "parallel.gpus_per_node": 2}
"""The least that DDP is used for. Its buckets are as large on any number of GPUs."""

OFFLOADING = ("zero3", "fsdp")
"""The sharding with which parameters can wait on the host."""

WITHOUT_EFFECT = ("data.imports", "data.epochs", "software", "task", "machine")
"""Fields, and groups of fields, that the need does not grow with: what is imported is read from the program, a task
comes with the model, releases decide defaults, and the machine is what the need is compared with."""

BEYOND = 64
"""A number that nobody stated is taken to be at most this many times larger."""
KEPT = "train.copies.ema"
"""Copies of the weights: one at the most, unless a program keeps a number of them that is not known."""
LARGEST_MODEL = 2 * 10**12
"""Parameters that no public model has: the largest have 1 to 1.6 trillion (Switch-C, Kimi K2)."""
HALF = 2
"""Bytes of a parameter in 16 bits, the least that a model takes that is not quantised."""

UNSTATED = 2**16
"""A number of which nothing is known."""

FROZEN = "train.frozen"
ALL = "*"
"""All parts of a model, as the name of one that is frozen."""


def worst_jobs(job: Job, weak: Mapping[str, Held]) -> Iterator[Job | None]:
    """The job with the worst value of every field; again for each further value that one may have. None: a field has no
    worst value."""
    first: dict[str, object] = {}
    further: list[Changes] = []
    for name, held in weak.items():
        values = values_of(job, name, held)
        if values is None:
            yield None
            return
        other = [_is_other(job, name, value) for value in values]
        if values and other[0]:
            first = {**with_ranks(job, name, values[0]), **first}
        further += [
            with_ranks(job, name, value) for value, is_other in zip(values[1:], other[1:], strict=True) if is_other
        ]
    if first:
        yield possible(job, first)
    for more in further:
        yield possible(job, {**first, **more})


def ways(job: Job, name: str, held: Held) -> Iterator[Job | None]:
    """The job with each of the values, other than its own, with which one field may take the most. None: there is no
    worst one."""
    values = values_of(job, name, held)
    if values is None:
        yield None
        return
    for value in values:
        if _is_other(job, name, value):
            yield possible(job, with_ranks(job, name, value))


def _is_other(job: Job, name: str, value: object) -> bool:
    """Whether a value may change the job. A law may take parts to be frozen that a job does not speak of."""
    return value != own_value(job, name) or (name == FROZEN and "frozen" not in job.train.model_fields_set)


def values_of(job: Job, name: str, held: Held) -> tuple[object, ...] | None:
    """The values with which a field may take the most, the worst first; its own may be among them. None where there is
    no worst one."""
    own = own_value(job, name)
    if name == KEPT and held.standing is Standing.unknown and not held.others:
        return (BEYOND,)
    if name in WORST:
        may = [*map(thawed, held.others)]
        return tuple(value for value in WORST[name] if not may or value == own or value in may)
    if held.others:
        return tuple(sorted((own, *map(thawed, held.others)), key=_downwards))
    most = longest(job, name)
    if most is not None and (own is None or (isinstance(own, int) and own <= most)):
        return (most,)
    if own is None:
        return _of_kind(name)
    if isinstance(own, bool):
        return (own, not own)
    if isinstance(own, (int, float)):
        return (own * BEYOND,)
    return None


def _downwards(value: object) -> float:
    """Orders values, the largest number first."""
    return -value if isinstance(value, (int, float)) else 0


def own_value(job: Job, name: str) -> object:
    """The value of a field of a job; None too where the job has no such key in a mapping."""
    try:
        return job.get(name)
    except KeyError:
        return None


def _of_kind(name: str) -> tuple[object, ...] | None:
    """The values to try of a field that has none."""
    kind = kind_of(name)
    if kind is None or kind.name not in ("int", "float", "bool", "enum"):
        return None
    return {"bool": (False, True), "enum": kind.choices}.get(kind.name, (UNSTATED,))


def with_ranks(job: Job, name: str, value: object) -> Changes:
    """The change of a field, with the ranks that DDP needs, and the sharding that offloaded parameters need."""
    ranks = (job.parallel.ranks_per_node or 1) * (job.parallel.nodes or 1)
    if name == "parallel.offload" and value == "parameters" and job.parallel.strategy not in OFFLOADING:
        return {name: value, "parallel.strategy": OFFLOADING[0]}
    return {name: value, **(DDP if value == "ddp" and ranks == 1 else {})}
