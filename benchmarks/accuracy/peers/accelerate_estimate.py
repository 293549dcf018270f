"""accelerate estimate-memory: four times the weights for a step of Adam (accelerate/commands/estimate.py)."""

from __future__ import annotations

from benchmarks.accuracy.peers.base import Answer, Refused, adapts, installed, one_figure, quantised
from benchmarks.accuracy.peers.models import parameters
from benchmarks.accuracy.truth import TIERS, Tier
from preflight.vocabulary.job import Job

_DTYPES = {"fp32": "float32", "fp16-mixed": "float16", "bf16-mixed": "bfloat16"}


class Accelerate:
    name = "accelerate"
    tiers: tuple[Tier, ...] = TIERS

    def __init__(self) -> None:
        self.version = installed("accelerate")

    def estimate(self, job: Job) -> Answer | Refused:
        """The largest of its columns for training. Weights in 16 bits are its x4 of half the bytes."""
        if adapts(job) or quantised(job):
            return Refused("full training only")
        if job.train.optimizer not in ("adamw", "adam"):
            return Refused("Adam only")
        if job.parallel.strategy not in (None, "none", "ddp"):
            return Refused("no option for sharded states")
        count = parameters(job)
        if isinstance(count, Refused):
            return count
        from accelerate.commands.estimate import estimate_training_usage

        size = 2 if job.train.precision in ("bf16", "fp16") or job.train.weights_dtype in ("bf16", "fp16") else 4
        kind = "float32" if size == 2 else _DTYPES[job.train.precision or "fp32"]
        return one_figure(max(estimate_training_usage(count * size, kind).values()))
