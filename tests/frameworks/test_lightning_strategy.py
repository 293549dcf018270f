"""The strategy that Lightning takes where nobody names one: DDP on more than one device."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.api import check

PROGRAM = """
import argparse
import lightning as L
import torch
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=1)
args = parser.parse_args()
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")
    def training_step(self, batch, index):
        return self.model(**batch).loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
trainer = L.Trainer({})
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=1))
"""


@pytest.mark.parametrize(
    ("said", "strategy"),
    [
        ("devices=1", "none"),
        ("devices=2", "ddp"),
        ("devices=[0, 1]", "ddp"),
        ("devices='0,'", "none"),
        ("devices=1, num_nodes=2", "ddp"),
        ("num_nodes=2", "ddp"),
        ("devices=2, strategy='auto'", "ddp"),
        ("devices=2, strategy='fsdp'", "fsdp"),
        ("devices=2, strategy='deepspeed_stage_2'", "zero2"),
        ("devices=2, accelerator='cpu'", None),
        ("devices='auto'", None),
        ("", None),
    ],
)
def test_the_strategy_of_a_trainer(said: str, strategy: str | None, tmp_path: Path) -> None:
    assert values(read_program(PROGRAM.format(said), tmp_path)).get("parallel.strategy") == strategy


def test_a_flag_says_how_many(tmp_path: Path) -> None:
    reading = read_program(PROGRAM.format("devices=args.gpus"), tmp_path)
    assert values(reading)["parallel.strategy"] == "none"
    assert values(reading, {"gpus": 4})["parallel.strategy"] == "ddp"


def test_a_strategy_that_is_not_known_stays_so(tmp_path: Path) -> None:
    found = values(read_program(PROGRAM.format("devices=2, strategy=choose()"), tmp_path))
    assert found.get("parallel.strategy") is None or is_unknown(found["parallel.strategy"])


@pytest.mark.parametrize(
    ("lines", "strategy"),
    [
        (("#SBATCH --gres=gpu:4", "python train.py"), "ddp"),
        (("#SBATCH --gres=gpu:4", "#SBATCH --ntasks-per-node=4", "srun python train.py"), "ddp"),
        (("#SBATCH --gres=gpu:1", "python train.py"), "none"),
    ],
)
def test_as_many_devices_as_slurm_gives(lines: tuple[str, ...], strategy: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(""))
    path = tmp_path / "job.sbatch"
    path.write_text("\n".join(("#!/bin/bash", *lines, "")))
    [study] = [one for report in check([path]).reports for one in report.studies]
    assert study.space.worst is not None
    assert study.space.worst.job.parallel.strategy == strategy
