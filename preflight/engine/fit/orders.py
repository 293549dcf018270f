"""The Job fields that can be solved for: those with an order, along which the memory never falls.

The bounds of the device and of the host never fall as a numeric field grows (`Estimator.device_bound`), so the fitting
values of a field are the smallest ones. Two fields run the other way: more accumulation steps with the same effective
batch are smaller micro-batches, and more GPUs hold smaller shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.fits import Kind, Memory
from preflight.vocabulary.job import Job

BATCH, LENGTH, IMAGE, ACCUMULATION = "train.batch_size", "train.seq_len", "train.image_size", "train.grad_accum"
GPU, GPUS, WORKERS = "machine.gpu", "parallel.gpus_per_node", "data.workers"

LONGEST = 2**20
"""Tokens: the longest contexts of public models are a million."""
SIDE_STEP, LARGEST_SIDE = 32, 8192
"""Pixels: the stride of most convolutional networks, and 16 or 32 of vision transformers divides it."""
NODE = 8
"""GPUs of the largest usual node: further ones are in further nodes."""
MOST = 2**20
MOST_BYTES = 2**50


class Order(Struct, frozen=True):
    """How a field is solved: its candidates, ascending, and the memory that decides."""

    title: str
    values: Sequence[int] = ()
    """Empty: the field has a solver of its own."""
    memory: Memory = "device"
    kind: Kind = "largest"


ORDERS: Mapping[str, Order] = {
    BATCH: Order("largest batch"),
    LENGTH: Order("longest length", range(1, LONGEST + 1)),
    IMAGE: Order("largest image size", range(SIDE_STEP, LARGEST_SIDE + 1, SIDE_STEP)),
    GPU: Order("smallest card", kind="smallest"),
    GPUS: Order("fewest GPUs", kind="smallest"),
    ACCUMULATION: Order("fewest accumulation steps", kind="smallest"),
    "train.target_len": Order("longest target", range(1, LONGEST + 1)),
    "train.text_len": Order("longest text", range(1, LONGEST + 1)),
    "train.images": Order("most images of a sample", range(1, 1025)),
    "train.sequences_per_sample": Order("most sequences of a sample", range(1, 1025)),
    "train.vocab_size": Order("largest vocabulary", range(1, 2**27 + 1)),
    "train.peft.r": Order("highest rank", range(1, 4097)),
    "train.copies.ema": Order("most averaged copies", range(65)),
    "train.copies.reference": Order("most reference copies", range(65)),
    "validation.batch_size": Order("largest evaluation batch", range(1, MOST + 1)),
    "validation.seq_len": Order("longest evaluation length", range(1, LONGEST + 1)),
    "validation.samples": Order("most evaluation samples", range(1, 2**30 + 1)),
    "validation.max_new_tokens": Order("most generated tokens", range(1, LONGEST + 1)),
    "validation.beams": Order("most beams", range(1, 1025)),
    "parallel.trials_per_gpu": Order("most trials of a GPU", range(1, 65)),
    WORKERS: Order("most workers", range(1025), "host"),
    "data.prefetch": Order("largest prefetch", range(1, 1025), "host"),
    "data.validation_workers": Order("most evaluation workers", range(1025), "host"),
    "data.sample_bytes": Order("largest sample", range(1, MOST_BYTES + 1), "host"),
    "data.in_memory_bytes": Order("largest data in memory", range(MOST_BYTES + 1), "host"),
    "data.worker_bytes": Order("most bytes of a worker", range(MOST_BYTES + 1), "host"),
}
"""Job field -> how it is solved."""

WORDS: Mapping[str, str] = {
    "batch": BATCH, "batch_size": BATCH, "length": LENGTH, "seq_len": LENGTH, "image_size": IMAGE,
    "rank": "train.peft.r", "lora_rank": "train.peft.r", "accumulation": ACCUMULATION, "grad_accum": ACCUMULATION,
    "workers": WORKERS, "prefetch": "data.prefetch", "gpu": GPU, "gpus": GPUS,
}  # fmt: skip
"""Short names of fields that people solve for."""

SHARDED = ("fsdp", "zero1", "zero2", "zero3")
"""Strategies under which more GPUs make the part of each one smaller."""


def field_named(text: str) -> str:
    """The field that `--field` names. Raises UsageError for one that has no order."""
    name = text.strip()
    field = WORDS.get(name.lower().replace("-", "_").replace(" ", "_"), name)
    if field in ORDERS:
        return field
    hint = suggestion(name, (*ORDERS, *WORDS))
    raise UsageError(f"--field {name}: it cannot be solved for{hint or '; these can: ' + ', '.join(ORDERS)}")


def usual_fields(job: Job) -> tuple[str, ...]:
    """The fields of the table that is shown by default."""
    train = job.train
    images = job.task in ("image-classification", "diffusion") or (
        train.seq_len is None and train.image_size is not None
    )
    return (BATCH, IMAGE if images else LENGTH, GPU, *((GPUS,) if job.parallel.strategy in SHARDED else ()))
