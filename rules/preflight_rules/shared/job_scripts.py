"""Example job scripts, their program and their cluster, that several rules show."""

from __future__ import annotations

from preflight.api import MIB

TRAIN = """
import argparse

import torch
from torch.utils.data import DataLoader

from data import dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()

model = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
for batch in loader:
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CLUSTER = """
[node.gpu]
memory = "256000MB"
cpus = 64
gpu = "A100-80GB"
gpu_type = "a100"
gpus = 4

[partition.gpu]
nodes = ["gpu"]
default = true
max_minutes = 1440
"""


def job(*directives: str, line: str = "srun python train.py --batch_size 64 --workers 4") -> str:
    """A job script."""
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), "", line, ""])


def files(script: str) -> dict[str, str]:
    """A job script on a described cluster."""
    return {"train.sbatch": script, "train.py": TRAIN, "cluster.toml": CLUSTER}


SAMPLES = {"data.sample_bytes": 16 * MIB, "software.glibc": "2.39"}
OPTIONS = {"machine": "cluster.toml", "set": SAMPLES}
