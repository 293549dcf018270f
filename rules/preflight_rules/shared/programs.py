"""Example programs and searches that several rules show."""

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
LANGUAGE = (
    LOOP.replace("AutoModelForSequenceClassification", "AutoModelForCausalLM")
    .replace("bert-base-uncased", "Qwen/Qwen2.5-0.5B")
    .replace("default=64", "default=16")
    .replace("default=512", "default=2048")
)
LOADER = """
import argparse

import torch
from torch.utils.data import DataLoader

from data import dataset, validation

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
args = parser.parse_args()

model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=16)
for batch in loader:
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
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
STUDY = """
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts


def objective(trial):
    batch_size = trial.suggest_categorical("batch_size", [8, 16, 64])
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.suggest_float("lr", 1e-5, 1e-4, log=True))
    dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
    for batch in DataLoader(dataset, batch_size=batch_size):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


study = optuna.create_study()
study.optimize(objective, n_trials=20)
"""
