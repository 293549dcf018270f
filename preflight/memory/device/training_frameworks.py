"""What frameworks do with any model that they train, beside its own step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.vocabulary.job import Job

DISTRIBUTED = (0, 5)
"""litgpt shards with ModelParallelStrategy, which loads parameter by parameter (litgpt/finetune/lora.py, 0.5)."""


def repeats_keys(job: Job) -> bool:
    """Whether grouped keys and values are copied for each query head (torchtune/modules/attention.py)."""
    return "torchtune" in job.software


def gathers(job: Job) -> bool:
    """Whether FSDP loads a checkpoint with all parameters whole on every GPU: litgpt until 0.5, through Fabric
    (lightning/fabric/strategies/fsdp.py, load_checkpoint: `summon_full_params(module, rank0_only=False)`)."""
    return job.parallel.strategy == "fsdp" and "litgpt" in job.software and litgpt_release(job) < DISTRIBUTED


def litgpt_release(job: Job) -> tuple[int, ...]:
    """litgpt's release; of one that is not stated, the newest."""
    return tuple(map(int, re.findall(r"\d+", job.software["litgpt"])[:2])) or (99, 0)
