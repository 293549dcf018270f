"""hf-vram-calc: weights x 4 x 1.3 for training, (weights + LoRA's states) x 1.2 for LoRA. One figure, no tier named."""

from __future__ import annotations

from benchmarks.accuracy.peers.base import Answer, Refused, adapts, installed, one_figure, quantised
from benchmarks.accuracy.peers.models import parameters
from benchmarks.accuracy.truth import TIERS, Tier
from preflight.vocabulary.job import Job


class HfVramCalc:
    name = "hf-vram-calc"
    tiers: tuple[Tier, ...] = TIERS

    def __init__(self) -> None:
        self.version = installed("hf-vram-calc")

    def estimate(self, job: Job) -> Answer | Refused:
        """The column "Training" or "LoRA" of its table at the weights' dtype."""
        if job.model.target is not None:
            return Refused("only models of transformers")
        if adapts(job) and job.train.peft.method != "lora":
            return Refused("no option for these adapters")
        if job.parallel.strategy not in (None, "none", "ddp"):
            return Refused("no option for sharded states")
        if not adapts(job) and job.train.optimizer not in ("adamw", "adam"):
            return Refused("Adam only")
        count = parameters(job)
        if isinstance(count, Refused):
            return count
        from hf_vram_calc.calculator import VRAMCalculator
        from hf_vram_calc.config import ConfigManager

        calculator = VRAMCalculator(ConfigManager())
        weights = calculator.calculate_model_memory(count, _dtype(job))
        if adapts(job):
            return one_figure(calculator.calculate_lora_memory(weights, count, job.train.peft.r or 64) * 2**30)
        return one_figure(calculator.calculate_training_memory(weights) * 2**30)


def _dtype(job: Job) -> str:
    if quantised(job):
        return "int8" if job.train.quantization.type == "int8" else "int4"
    weights = job.train.weights_dtype or (job.train.precision or "fp32").removesuffix("-mixed")
    return str(weights) if job.train.weights_dtype or "mixed" not in (job.train.precision or "") else "fp32"
