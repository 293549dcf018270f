"""What several GPUs change: which states are sharded, and what gathering and reducing them adds, per rank.

Sources: ZeRO (Rajbhandari et al., 2020) for what stages shard; torch/nn/parallel/distributed.py (buckets of gradients
beside the gradients themselves, unless gradient_as_bucket_view); torch FSDP (the unsharded unit and the next one).
"""

from __future__ import annotations

from preflight.job import Job
from preflight.records import dataclass
from preflight.values import Unknown


@dataclass(frozen=True)
class Sharding:
    """Fractions of weights, gradients and optimizer states that one rank keeps on its GPU, and what comes on top.

    `gathered_layers`: layers' weights that are whole at one time. `bucket_copies`: copies of the gradients in buckets.
    """

    weights: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    gathered_layers: int = 0
    bucket_copies: float = 0.0
    ranks: int = 1

    @property
    def sharded(self) -> bool:
        return min(self.weights, self.gradients, self.optimizer) < 1


def sharding(job: Job) -> Sharding | Unknown:
    """How a job's states lie on its GPUs; Unknown for a setting that is not known."""
    p = job.parallel
    if p.strategy is None:
        return Unknown("parallel.strategy is not known")
    if (p.tensor or 1) > 1 or (p.pipeline or 1) > 1:
        return Unknown("parallel.tensor and parallel.pipeline have no law yet")
    if p.strategy == "none":
        return Sharding()
    if p.nodes is None or (p.gpus_per_node is None and p.ranks_per_node is None):
        return Unknown("parallel.nodes or parallel.gpus_per_node is not known")
    ranks = p.nodes * max(p.ranks_per_node or 1, p.gpus_per_node or 1)
    share = 1 / ranks
    optimizer = 0.0 if p.offload in ("optimizer", "parameters") else share
    if p.strategy == "ddp":
        return Sharding(bucket_copies=1.0 if ranks > 1 else 0.0, ranks=ranks)
    if p.strategy == "zero1":
        return Sharding(optimizer=optimizer, ranks=ranks)
    gradients = 0.0 if p.offload in ("gradients", "optimizer", "parameters") else share
    if p.strategy == "zero2":
        return Sharding(gradients=gradients, optimizer=optimizer, ranks=ranks)
    weights = 0.0 if p.offload == "parameters" else share
    return Sharding(weights, gradients, optimizer, 2, 0.0, ranks)
