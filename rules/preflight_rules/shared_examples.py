"""Examples of the rule about concurrent launches: its tests, and what its page shows."""

from __future__ import annotations

from preflight.vocabulary.rule import Example
from preflight_rules.slurm_examples import CLUSTER, SAMPLES, TRAIN


def script(*commands: str, memory: str = "60G") -> str:
    """A job script that starts several commands."""
    head = ["#!/bin/bash", "#SBATCH --gres=gpu:a100:4", "#SBATCH --cpus-per-task=32", f"#SBATCH --mem={memory}", ""]
    return "\n".join([*head, *commands, ""])


def files(text: str) -> dict[str, str]:
    """A job script on a described cluster."""
    return {"train.sbatch": text, "train.py": TRAIN, "cluster.toml": CLUSTER}


FOUR = [f"CUDA_VISIBLE_DEVICES={gpu} python train.py --batch_size 64 --workers 4 &" for gpu in range(4)]
OPTIONS = {"machine": "cluster.toml", "set": SAMPLES}

CONCURRENT = (
    Example(
        "Four runs side by side, each of which fits alone",
        files(script(*FOUR, "wait")),
        fixed={"train.sbatch": script(*FOUR, "wait", memory="72G")},
        says=("4 launches run at the same time", "60 GiB may be used"),
        options=OPTIONS,
    ),
    Example(
        "The same runs one after the other",
        files(script(*[line.removesuffix(" &") for line in FOUR])),
        finds=0,
        options=OPTIONS,
    ),
    Example("Enough for all four", files(script(*FOUR, "wait", memory="128G")), finds=0, options=OPTIONS),
)
