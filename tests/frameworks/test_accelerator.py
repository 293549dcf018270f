"""A program that says what it trains on, and a request that asks for no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.memory.host.estimate import estimate_host
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.reading import Call, Launch
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Cause, Const, Unknown

SAID = {
    "import lightning as L\ntrainer = L.Trainer(accelerator='cpu')\n": "cpu",
    "import lightning as L\ntrainer = L.Trainer(accelerator='auto')\n": "gpu",
    "from transformers import TrainingArguments\nargs = TrainingArguments('out', use_cpu=True)\n": "cpu",
    "from trl import DPOConfig\nargs = DPOConfig('out')\nargs.use_cpu = True\n": "cpu",
    "from transformers import TrainingArguments\nargs = TrainingArguments('out', no_cuda=False)\n": None,
    "from accelerate import Accelerator\naccelerator = Accelerator(cpu=True)\n": "cpu",
    "from accelerate import Accelerator\naccelerator = Accelerator()\n": None,
}


@pytest.mark.parametrize("text", SAID)
def test_programs_that_say_it(text: str, tmp_path: Path) -> None:
    assert values(read_program(text, tmp_path)).get("machine.accelerator") == SAID[text]


TRAINER = "from transformers import TrainingArguments\nargs = TrainingArguments('out', bf16=True)\n"
CASTS = {
    "Accelerator": ("from accelerate import Accelerator\naccelerator = Accelerator(cpu=False)\n", "", True),
    "Trainer": (TRAINER, "", True),
    "Trainer of 4.30": (TRAINER, "transformers==4.30.2\n", True),
    "Trainer with autocast of its own": (TRAINER, "transformers==4.29.2\n", None),
    "a plain loop": ("import torch\nwith torch.autocast('cuda'):\n    pass\n", "", None),
    "Lightning": ("import lightning as L\ntrainer = L.Trainer(precision='bf16-mixed')\n", "", None),
}


@pytest.mark.parametrize("name", CASTS)
def test_who_casts_the_outputs_of_a_model(name: str, tmp_path: Path) -> None:
    text, requirements, casts = CASTS[name]
    (tmp_path / "requirements.txt").write_text(requirements)
    assert values(read_program(text, tmp_path)).get("train.outputs_cast") is casts


def test_an_accelerator_that_is_not_known_here(tmp_path: Path) -> None:
    text = "import lightning as L\ntrainer = L.Trainer(accelerator='tpu')\n"
    assert is_unknown(values(read_program(text, tmp_path))["machine.accelerator"])


CONDITIONAL = """
import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
args = parser.parse_args()
if args.half:
    accelerator = Accelerator(mixed_precision="bf16")
"""


@pytest.mark.parametrize(("half", "precision"), [(False, None), (True, "bf16-mixed")])
def test_an_accelerator_under_a_condition(half: bool, precision: str | None, tmp_path: Path) -> None:
    assert values(read_program(CONDITIONAL, tmp_path), {"half": half}).get("train.precision") == precision


FLAG = """
import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--mixed_precision", default=None, choices=["no", "fp16", "bf16"])
accelerator = Accelerator(mixed_precision=parser.parse_args().mixed_precision)
"""


@pytest.mark.parametrize(("given", "precision"), [(None, "bf16-mixed"), ("no", "fp32"), ("fp16", "fp16-mixed")])
def test_a_flag_that_nobody_gives_leaves_the_precision_to_the_launch(
    given: str | None, precision: str, tmp_path: Path
) -> None:
    call = Call("run.sh", (), {}, Launch("accelerate", environment={"ACCELERATE_MIXED_PRECISION": Const("bf16")}))
    found = values(read_program(FLAG, tmp_path, call), {"mixed_precision": given})
    assert found.get("train.precision") == precision


TRAIN = """
import torch
from torch.utils.data import DataLoader
from data import dataset

model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=4, num_workers=3, pin_memory=True):
    model(batch).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("directives", "accelerator"),
    [
        ("--mem=8G", "cpu"),
        ("--mem=8G\n#SBATCH --gres=gpu:1", "gpu"),
        ("--gres=nvme:1", "cpu"),
        ("--gpus-per-node=1", "gpu"),
        ("--exclusive", "gpu"),
        ("--partition=a100", "gpu"),
        ("--partition=batch", "cpu"),
    ],
)
def test_a_request_without_a_gpu(directives: str, accelerator: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH {directives}\npython train.py\n")
    batch = Batch(tmp_path, Settings(), None, ("job.sh",), ())
    project, asked = engine.setup(batch, engine.CheckOptions(), tmp_path)
    [study] = engine.check(project, asked).studies
    assert study.space.worst.job.machine.accelerator == accelerator


def test_training_on_the_processor_is_not_modelled() -> None:
    fields: dict[str, object] = {
        "data.sample_bytes": 2**20, "train.batch_size": 8, "data.workers": 2, "data.pin_memory": True,
    }  # fmt: skip
    gpu, cpu = (estimate_host(build({**fields, "machine.accelerator": name})) for name in ("gpu", "cpu"))
    assert isinstance(gpu, HostEstimate)
    assert {"cuda", "pinned"} <= gpu.breakdown.keys()
    assert isinstance(cpu, Unknown)
    assert cpu.cause is Cause.not_modelled
