"""What a model's weights take on the host while they are loaded, from the device's law of the same job."""

from __future__ import annotations

from preflight.job import Job, identity
from preflight.memory.host.constants import WEIGHT_BYTES
from preflight.records import dataclass
from preflight.values import Unknown

ONE_COPY = ("fsdp", "zero3")
"""Strategies under which one rank of a node reads the checkpoint and the others get their shards
(accelerate's fsdp_cpu_ram_efficient_loading, on by default; deepspeed.zero.Init)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of the model, and their bytes in the type that they are loaded in."""

    parameters: int
    bytes: int


_known: dict[str, Weights | None] = {}


def weights_of(job: Job, parameters: int | None = None) -> Weights | None:
    """The model's weights; None where neither a count nor a law is known. Quantised ones go to the GPU in pieces."""
    count = parameters if parameters is not None else job.model.parameters
    if count is not None:
        each = WEIGHT_BYTES[job.train.weights_dtype or _implied(job)]
        return Weights(count, 0 if _quantised(job) else count * each)
    if all(getattr(job.model, name) is None for name in ("name", "architecture", "path", "target")):
        return None
    # lengths and batch change nothing here: one look-up serves a whole search over them
    train = job.train.model_copy(update={"batch_size": None, "grad_accum": None, "seq_len": None})
    text = f"{identity(job.model)} {job.task} {identity(train)} {job.software}"
    if text not in _known:
        _known[text] = _from_law(job)
    return _known[text]


def _from_law(job: Job) -> Weights | None:
    from preflight.memory.device.estimate import prepare

    lengths = {"seq_len": job.train.seq_len or 128, "batch_size": job.train.batch_size or 1}
    some = job.model_copy(update={"train": job.train.model_copy(update=lengths)})
    ready = prepare(some)
    if isinstance(ready, Unknown):
        return None
    count = sum(number for number, _, _ in ready.parameters)
    size = round(sum(number * size for number, size, _ in ready.parameters))
    return Weights(count, 0 if _quantised(job) else size)


def _quantised(job: Job) -> bool:
    return job.train.quantization.type not in ("none", None)


def _implied(job: Job) -> str:
    return job.train.precision if job.train.precision in ("bf16", "fp16") else "fp32"
