"""`docker run` in a job script: the program inside, and what the container gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.settings import Settings

TRAIN = """
import torch
from torch.utils.data import DataLoader
from data import dataset

model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=4, num_workers=3):
    model(batch).mean().backward()
    optimizer.step()
"""
MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("command", "shm", "memory"),
    [
        ("docker run --rm -it --gpus all image python train.py", 64 * MIB, None),
        ("docker run -it --shm-size=8g -m 16g image python train.py", 8 * GIB, 16 * GIB),
        ("docker run --shm-size 512M -v /a:/b image bash -c 'python train.py'", 512 * MIB, None),
        ("docker container run --memory 1073741824 image python train.py", 64 * MIB, GIB),
        ("podman run --ipc host image torchrun train.py", None, None),
        ("docker run --ipc=private -e X=1 image python /work/train.py", 64 * MIB, None),
        ("apptainer exec --nv image.sif python train.py", None, None),
        ("enroot start --rw --mount /a:/b -e X=1 image python train.py", None, None),
        ("docker exec box python train.py", None, None),
    ],
)
def test_what_a_container_gives(command: str, shm: int | None, memory: int | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{command}\n")
    batch = Batch(tmp_path, Settings(), None, ("job.sh",), ())
    project, asked = engine.setup(batch, engine.CheckOptions(), tmp_path)
    found = [one.space.worst.job for one in engine.check(project, asked).studies]
    machines = [job.machine for job in found]
    if "exec box" in command:
        assert all(machine.shm is None for machine in machines)
        return
    assert [(machine.shm, machine.memory_limit) for machine in machines] == [(shm, memory)]
