"""Host memory of a model's weights while they are loaded. Their number comes from the device law of the same job."""

from __future__ import annotations

from msgspec import Struct

from preflight.memory.device.prepare import prepare
from preflight.memory.host.constants import WEIGHT_BYTES
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.values import Unknown

ONE_COPY = ("fsdp", "zero3")
"""Strategies with which one rank of a node reads the checkpoint, and the other ranks get their shards
(accelerate's fsdp_cpu_ram_efficient_loading, on by default; deepspeed.zero.Init)."""


class Weights(Struct, frozen=True):
    """The number of parameters, and their bytes in the type in which they are loaded."""

    parameters: int
    bytes: int


COPIES = {
    "built": 1.0,
    "from-pretrained": 0.0,
    "from-pretrained-cast": 1.0,
    "torch-load": 2.0,
    "torch-load-mmap": 1.0,
    "torch-load-full": 4.0,
}
"""Copies of the weights in a rank's anonymous memory while it loads them, by `model.load`. A built model has its own
weights. torch.load also reads every tensor of the file (a full state has Adam's two moments, too); with mmap, pages of
the file. from_pretrained builds the model on the meta device and fills it with private mappings of the safetensors file
(transformers 5.23, core_model_loading.py; safetensors 0.8). These are page cache, which no limit kills for, as long as
their type is the requested one. A cast makes one copy of the result, tensor by tensor. Measured: 0, 1, 2, 1, 4 copies
to 0.1 %, in one file and in shards, the same on each of two and four ranks."""

KEEPS_TYPE = (5,)
"""From this version of transformers on, from_pretrained keeps the type of the file if none is given (dtype="auto");
before, it cast to fp32 (transformers#34743)."""

SAVING = 0.0
"""Copies that torch.save, safetensors' save_model and save_pretrained make of tensors on the host: less than 0.1 %."""


def copies(job: Job) -> tuple[float, float]:
    """Copies of the weights while they are loaded: low and expected. Expected is one if `model.load` is unknown.

    On the CPU the optimizer writes to the weights, so pages of the file become private memory of the process.
    """
    load = job.model.load
    least, expected = COPIES.get(load or "", 0.0), COPIES.get(load or "", 1.0)
    if load == "from-pretrained":
        version = release(job.software.get("transformers")) or NEWEST
        if version < KEEPS_TYPE or job.machine.accelerator == "cpu":
            expected = 1.0
    return (0.0 if load == "from-pretrained-cast" else least), expected


_KNOWN: BoundedCache[Weights | None] = BoundedCache(1024)


def weights_of(job: Job, parameters: int | None = None, tracing: Tracing = SHIPPED_ONLY) -> Weights | None:
    """The weights of the model; None: no count and no law is known, and tracing is not allowed.

    Quantised weights go to the GPU piece by piece.
    """
    count = parameters if parameters is not None else job.model.parameters
    if count is not None:
        each = WEIGHT_BYTES[job.train.weights_dtype or _implied(job)]
        return Weights(count, 0 if _quantised(job) else count * each)
    if all(getattr(job.model, name) is None for name in ("name", "architecture", "path", "target")):
        return None
    # lengths and batch do not matter here, so one look-up is enough for a whole search over them
    train = unchecked(job, {"train.batch_size": None, "train.grad_accum": None, "train.seq_len": None}).train
    text = f"{identity(job.model)} {job.task} {identity(train)} {job.software}"
    return _KNOWN.get(None, (text, tracing), lambda: _from_law(job, tracing))


def _from_law(job: Job, tracing: Tracing) -> Weights | None:
    lengths = {"train.seq_len": job.train.seq_len or 128, "train.batch_size": job.train.batch_size or 1}
    ready = prepare(unchecked(job, lengths), tracing=tracing)
    if isinstance(ready, Unknown):
        return None
    count = sum(number for number, _, _ in ready.parameters)
    size = round(sum(number * size for number, size, _ in ready.parameters))
    return Weights(count, 0 if _quantised(job) else size)


def _quantised(job: Job) -> bool:
    return job.train.quantization.type not in ("none", None)


def _implied(job: Job) -> str:
    return job.train.precision if job.train.precision in ("bf16", "fp16") else "fp32"
