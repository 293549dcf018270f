"""Example programs, searches and job scripts that several rules show."""

from __future__ import annotations

from preflight.api import MIB

LOOP = """
import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--grad_accum", type=int, default=1)
parser.add_argument("--max_length", type=int, default=512)
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=args.max_length)
loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
for step, batch in enumerate(loader):
    loss = model(**batch).loss / args.grad_accum
    loss.backward()
    if (step + 1) % args.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
UNDIVIDED = LOOP.replace(".loss / args.grad_accum", ".loss")
PLAIN = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import texts

tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=490)
for batch in DataLoader(dataset, batch_size=15, shuffle=True):
    outputs = model(**batch)
    loss = outputs.loss
    {}loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
KEEPS, DELETES = (PLAIN.format("").replace("490", "470"), PLAIN.format("del outputs\n    ").replace("490", "470"))
FRAGMENTED = PLAIN.format("").replace(
    "    outputs = model(**batch)\n    loss = outputs.loss", "    loss = model(**batch).loss"
)
"""The rest of the cache does not fit the next step."""
LANGUAGE = (
    LOOP.replace("AutoModelForSequenceClassification", "AutoModelForCausalLM")
    .replace("bert-base-uncased", "Qwen/Qwen2.5-0.5B")
    .replace("default=64", "default=16")
    .replace("default=512", "default=2048")
)
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
DISTRIBUTED = TRAIN.replace("model = ", 'torch.distributed.init_process_group("nccl")\nmodel = ').replace(
    "torch.nn.Linear(10, 10).cuda()", "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10).cuda())"
)
LOADER = (
    TRAIN.replace("import dataset", "import dataset, validation")
    .replace('parser.add_argument("--workers", type=int, default=4)\n', "")
    .replace(".cuda()", "")
    .replace("args.workers", "16")
)
SAMPLES = {"data.sample_bytes": 4 * MIB, "software.glibc": "2.39"}


def options(gib: float, **more: object) -> dict[str, object]:
    """Settings that state a sample of 4 MiB, a C library and a limit."""
    return {"set": {**SAMPLES, "machine.memory_limit": int(gib * 1024) * MIB, **more}}


SWEEP = """
program: train.py
method: grid
parameters:
  batch_size:
    values: [8, 16, 64]  # samples
  max_length:
    values: [128, 512]
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


def job_files(script: str) -> dict[str, str]:
    """A job script on a described cluster."""
    return {"train.sbatch": script, "train.py": TRAIN, "cluster.toml": CLUSTER}


JOB_SAMPLES = {"data.sample_bytes": 16 * MIB, "software.glibc": "2.39"}
ON_CLUSTER = {"machine": "cluster.toml", "set": JOB_SAMPLES}
