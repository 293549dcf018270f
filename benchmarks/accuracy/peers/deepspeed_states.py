"""DeepSpeed's estimators of model states: estimate_zero2_ and estimate_zero3_model_states_mem_needs."""

from __future__ import annotations

from benchmarks.accuracy.peers.base import Answer, Refused, adapts, installed, one_figure
from benchmarks.accuracy.peers.models import parameters
from benchmarks.accuracy.truth import TIERS, Tier
from preflight.vocabulary.job import Job


class DeepSpeed:
    name = "deepspeed"
    tiers: tuple[Tier, ...] = TIERS

    def __init__(self) -> None:
        self.version = installed("deepspeed")

    def estimate(self, job: Job) -> Answer | Refused:
        """States of mixed-precision Adam: ZeRO-2 (on one GPU too, where nothing is sharded) and ZeRO-3."""
        parallel = job.parallel
        if adapts(job):
            return Refused("full training only")
        if job.train.optimizer not in ("adamw", "adam"):
            return Refused("Adam only")
        if parallel.strategy not in (None, "none", "zero2", "zero3"):
            return Refused(f"no estimator for {parallel.strategy}")
        count = parameters(job)
        if isinstance(count, Refused):
            return count
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

        gpus = max(parallel.gpus_per_node or 1, parallel.ranks_per_node or 1)
        offload = parallel.offload not in (None, "none")
        if parallel.strategy == "zero3":
            # The largest layer's parameters are its user's to state; without them the embedding is left out.
            parameters_too = parallel.offload == "parameters"
            return one_figure(zero3(count, 0, gpus, parallel.nodes or 1, offload, parameters_too)[1])
        return one_figure(zero2(count, gpus, parallel.nodes or 1, offload)[1])
