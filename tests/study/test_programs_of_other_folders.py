"""Programs that lie elsewhere than the readers used to look: in nested projects, in tests' names, in containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks_as_text import studies, value
from programs_as_text import read_program, values

LOOP = """
import torch
from torch.utils.data import DataLoader
{more}
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size={size}, shuffle=True):
    model(x).sum().backward()
    optimizer.step()
"""
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\n{more}\npython {name}\n"


def test_modules_of_a_project_in_a_folder(tmp_path: Path) -> None:
    files = {
        "inner/src/training/train.py": LOOP.format(more="from src.settings.sizes import SIZE", size="SIZE"),
        "inner/src/settings/sizes.py": "SIZE = 12\n",
    }
    (study,) = studies(JOB.format(more="cd inner", name="src/training/train.py"), tmp_path, files, "job.sbatch")
    assert value(study, "train.batch_size") == 12


def test_a_program_that_is_named_like_a_test(tmp_path: Path) -> None:
    files = {"test_ddp.py": LOOP.format(more="", size=6)}
    (study,) = studies(JOB.format(more="", name="test_ddp.py"), tmp_path, files, "job.sbatch")
    assert value(study, "train.batch_size") == 6


def test_a_script_that_submits_the_program_of_another_file(tmp_path: Path) -> None:
    loop = LOOP.format(more="", size=10).replace("\n", "\n    ")
    files = {
        "submit.py": "import middle\nif __name__ == '__main__':\n    middle.main()\n",
        "middle.py": "import inner\ndef main():\n    inner.main()\n",
        "inner.py": f"import torch\ndef main():\n    {loop}\n",
    }
    (study,) = studies(JOB.format(more="", name="submit.py"), tmp_path, files, "job.sbatch")
    assert value(study, "train.batch_size") == 10


@pytest.mark.parametrize("option", ["--container-workdir=/home/me/project/code", "--chdir=code"])
def test_the_directory_of_the_container(option: str, tmp_path: Path) -> None:
    files = {"code/train.py": LOOP.format(more="", size=14)}
    (study,) = studies(JOB.format(more=f"#SBATCH {option}", name="train.py"), tmp_path, files, "scripts/job.sbatch")
    assert value(study, "train.batch_size") == 14


TAP = """
from tap import Tap

class Args(Tap):
    batch: int = 9
    half: bool = False
    def process_args(self):
        self.twice = self.batch * 2

args = Args({more}).parse_args()
"""


@pytest.mark.parametrize(("name", "size"), [("args.batch", 9), ("args.twice", 18)])
def test_arguments_of_tap(name: str, size: int, tmp_path: Path) -> None:
    reading = read_program(TAP.format(more="") + LOOP.format(more="", size=name), tmp_path)
    assert values(reading)["train.batch_size"] == size
    assert {one.name: one.type for one in reading.parameters}["half"] == "flag"
    assert values(reading, {"batch": 4})["train.batch_size"] == size // 9 * 4


HF = """
import sys
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    model_name: str = "gpt2"

class Parser(HfArgumentParser):
    def parse(self):
        if len(sys.argv) == 2:
            return self.parse_yaml_file(sys.argv[1])
        return self.join(sys.argv[1], sys.argv[2:])

model_args, training_args = Parser((ModelArguments, TrainingArguments)).parse()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name)
Trainer(model, training_args).train()
"""


@pytest.mark.parametrize(("more", "size"), [("", 3), (" --per_device_train_batch_size=5", 5)])
def test_a_file_and_flags_of_a_parser_of_the_project(more: str, size: int, tmp_path: Path) -> None:
    arguments = "model_name: distilgpt2\nper_device_train_batch_size: 3\noutput_dir: out\n"
    files = {"train.py": HF, "args.yaml": arguments}
    (study,) = studies(JOB.format(more="", name=f"train.py args.yaml{more}"), tmp_path, files, "job.sbatch")
    assert (value(study, "model.name"), value(study, "train.batch_size")) == ("distilgpt2", size)


FOLDER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("{name}"{more})
Trainer(model, TrainingArguments("out", per_device_train_batch_size=2)).train()
"""


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/data/models/distilgpt2", "distilbert/distilgpt2"),
        ("./models/Qwen2-0.5B-Instruct", "Qwen/Qwen2-0.5B-Instruct"),
        ("/data/checkpoints/last", "/data/checkpoints/last"),
        ("someone/distilgpt2", "someone/distilgpt2"),
    ],
)
def test_the_model_of_a_folder_is_that_of_its_name(folder: str, name: str, tmp_path: Path) -> None:
    (study,) = studies(FOLDER.format(name=folder, more=""), tmp_path, name="train.py")
    assert value(study, "model.name") == name


@pytest.mark.parametrize(("name", "precision"), [("distilgpt2", "fp32"), ("meta-llama/Llama-2-7b-hf", "?")])
def test_weights_as_they_were_saved(name: str, precision: str, tmp_path: Path) -> None:
    (study,) = studies(FOLDER.format(name=name, more=', torch_dtype="auto"'), tmp_path, name="train.py")
    assert value(study, "train.precision") == precision
