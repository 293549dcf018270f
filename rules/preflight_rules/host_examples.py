"""Examples of the rules about one node: their tests, and what their pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example

MIB = 2**20
GIB = 2**30

TRAIN = """
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

WITH_VALIDATION = TRAIN.replace(
    "for batch in loader:",
    "validation_loader = DataLoader(validation, batch_size=args.batch_size, num_workers=16)\nfor batch in loader:",
).replace("num_workers=16)\nval", "num_workers=16, persistent_workers=True)\nval")

SAMPLES = {"data.sample_bytes": 4 * MIB, "software.glibc": "2.39"}


def options(gib: float, **more: object) -> dict[str, object]:
    """Settings that state a sample of 4 MiB, a C library and a limit."""
    return {"set": {**SAMPLES, "machine.memory_limit": int(gib * 1024) * MIB, **more}}


EXCEEDED = (
    Example(
        "16 workers keep 33 batches of 256 MiB in flight",
        {"train.py": TRAIN},
        fixed={"train.py": TRAIN.replace("num_workers=16", "num_workers=8")},
        says=("batch 64", "16 workers", "12 GiB may be used"),
        options=options(12),
    ),
    Example("The same loader on a node with enough memory", {"train.py": TRAIN}, finds=0, options=options(64)),
    Example("No limit is known", {"train.py": TRAIN}, finds=0, options={"set": SAMPLES}),
)

SPIKE = (
    Example(
        "A second loader with as many workers, while the first one's workers stay",
        {"train.py": WITH_VALIDATION},
        fixed={"train.py": WITH_VALIDATION.replace("persistent_workers=True", "persistent_workers=False")},
        says=("training fits with", "validation loaders"),
        options=options(18),
    ),
    Example(
        "The size of a sample is nowhere: the inequality is solved for it",
        {"train.py": WITH_VALIDATION},
        says=("fits only if one decoded sample is at most", "data.sample_bytes"),
        options={"set": {"machine.memory_limit": 16 * 1024 * MIB}},
    ),
    Example("Room for both loaders", {"train.py": WITH_VALIDATION}, finds=0, options=options(64)),
)

CPUS = (
    Example(
        "16 workers on 8 processors",
        {"train.py": TRAIN},
        fixed={"train.py": TRAIN.replace("num_workers=16", "num_workers=8")},
        says=("16 workers on 8 CPUs",),
        options={"set": {"machine.cpus": 8}},
    ),
    Example("16 workers on 16 processors", {"train.py": TRAIN}, finds=0, options={"set": {"machine.cpus": 16}}),
)
