"""One rank of a job: its law, its dimensions, and the additional memory on its GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.workload import Storage
from preflight.memory.device.optimizers import step
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.optimizer import Step

_WEIGHTS: BoundedCache[int] = BoundedCache(64)
"""Bytes of the weights of a model: it has the same at every point of a search over batches and lengths."""


class DeviceRank(Struct, frozen=True):
    """One rank, as an estimate needs it.

    `rows`: (elements, bytes per element, trainable) of each weight's storage here. `gradients`: bytes of gradients
    between backward and the step, beside `storages`. `owned`: (elements, bytes per element) of what the optimizer steps
    over here; `step`: held at its beginning, in addition to each of its waves.
    """

    layout: ShardLayout
    laws: Laws
    dims: Mapping[str, int]
    rows: tuple[tuple[int, float, bool], ...]
    storages: tuple[Storage, ...]
    gradients: int
    owned: tuple[tuple[int, int], ...]
    step: tuple[int, ...]

    @property
    def weights(self) -> int:
        return _WEIGHTS.get(self.rows, None, lambda: math.ceil(sum(n * size for n, size, _ in self.rows)))

    def stepped(self, name: str, implementation: str) -> Step | None:
        """This rank's optimizer step; None for an optimizer that is not known. ZeRO steps over one tensor after the
        other, each together with its gradient in fp32."""
        zero_stage = self.layout.scheme.startswith("zero")
        groups = [[one] for one in self.owned] if zero_stage and self.owned else [list(self.owned)]
        steps = [step(name, implementation, group) for group in groups]
        states: tuple[int, ...] = ()
        waves: tuple[tuple[int, ...], ...] = ()
        for one in steps:
            if one is None:
                return None
            states += one.states
            waves += tuple((*self.step, *wave) for wave in one.waves) or ((self.step,) if self.step else ())
        return Step(states, waves)


_UPCASTS = (0, 30)
"""accelerate stores what FSDP trains in fp32 under mixed precision from 0.30 on (accelerator.py, prepare_model:
`param.data.to(torch.float32)` of each FlatParameter that requires a gradient; utils/fsdp_utils.py,
fsdp2_prepare_model, likewise of each parameter, but of no model that has weights in 4 bits)."""
_OTHERS = ("litgpt", "torchtune", "lightning")
"""Libraries that shard with FSDP and cast nothing."""


def view(job: Job, layout: ShardLayout) -> Job:
    """The job as one process runs it: DeepSpeed casts the model to 16 bits instead of using autocast
    (runtime/engine.py, _configure_distributed_model; accelerate leaves it to that: accelerator.py, native_amp).
    Under FSDP accelerate, and Trainer with it, keeps what is trained in fp32 where the training is mixed: the whole
    model, or the adapters of a frozen one."""
    precision = job.train.precision or ""
    if not precision.endswith("-mixed"):
        return job
    if layout.scheme.startswith("zero"):
        return _trained(job, {"precision": precision.removesuffix("-mixed"), "weights_dtype": None})
    if not layout.scheme.startswith("fsdp") or not _upcasts(job, layout):
        return job
    if job.train.peft.method in (None, "none"):
        return _trained(job, {"weights_dtype": None})
    return _trained(job, {"peft": job.train.peft.model_copy(update={"dtype": "fp32"})})


def _trained(job: Job, update: dict[str, object]) -> Job:
    return job.model_copy(update={"train": job.train.model_copy(update=update)})


def _upcasts(job: Job, layout: ShardLayout) -> bool:
    if any(name in job.software for name in _OTHERS):
        return False
    if layout.scheme == "fsdp2" and job.train.quantization.type in ("nf4", "fp4"):
        return False
    return (release(job.software.get("accelerate")) or NEWEST) >= _UPCASTS
