"""Jobs that only use a model: they are no studies, and nothing else is taken for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.settings import Settings

JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\n{}\n"
EVALUATES = "import torch\nfrom nets import net\nwith torch.no_grad():\n    print(net()(x))\n"
PREDICTS = "from transformers import Trainer\nfrom nets import net\nprint(Trainer(net()).predict(data))\n"
NET = """
import torch
def net():
    return torch.nn.Linear(2, 2)
def stepper(model):
    return torch.optim.Adam(model.parameters())
"""


def studies(command: str, program: str, folder: Path, net: str = NET) -> int:
    (folder / "job.sh").write_text(JOB.format(command))
    (folder / "pack").mkdir()
    for place in (folder, folder / "pack"):
        (place / "use.py").write_text(program)
        (place / "nets.py").write_text(net)
    project, asked = engine.setup(Batch(folder, Settings(), None, ("job.sh",), ()), engine.CheckOptions(), folder)
    return len(engine.check(project, asked).studies)


@pytest.mark.parametrize("command", ["python use.py", "srun python -m pack.use --all", "pip install x\npython use.py"])
def test_a_job_that_evaluates_is_no_study(command: str, tmp_path: Path) -> None:
    assert studies(command, EVALUATES, tmp_path) == 0


def test_a_job_with_a_trainer_that_predicts_alone_is_no_study(tmp_path: Path) -> None:
    assert studies("python use.py", PREDICTS, tmp_path) == 0


@pytest.mark.parametrize(
    ("command", "program", "net"),
    [
        ("python use.py\ntorchrun other.py", EVALUATES, NET),
        ("python use.py\n./unknown_program", EVALUATES, NET),
        ("python use.py", "import subprocess\n" + EVALUATES, NET),
        ("python use.py", EVALUATES + "train(net())\n", NET),
        ("python use.py", PREDICTS + "Trainer(net()).train()\n", NET),
        ("python use.py", EVALUATES, "import tensorflow\n" + NET),
        ("python use.py", "from nets import net\nnet()\n", "def net():\n    return 1\n"),
    ],
    ids=[
        "another program",
        "one that is not known",
        "starts others",
        "trains",
        "a Trainer trains",
        "another framework",
        "uses no model",
    ],
)
def test_a_job_that_may_train_is_one(command: str, program: str, net: str, tmp_path: Path) -> None:
    assert studies(command, program, tmp_path, net) == 1
