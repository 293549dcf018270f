"""Jobs that only use a model: they are no studies, and nothing else is taken for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
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
    return len(build(["job.sh"], Project(folder, Settings()))[0])


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


HF = """
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Model:
    name: str = "gpt2"
    again: bool = False


model_args, training_args = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.name)
trainer = Trainer(model, training_args)
if training_args.do_train:
    trainer.train()
if training_args.do_eval:
    trainer.evaluate()
"""
OWN = """
import argparse, torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--do_train", action="store_true")
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters())
if args.do_train:
    for batch in torch.utils.data.DataLoader(data, batch_size=args.bs):
        model(**batch).loss.backward()
        optimizer.step()
print(model(**next(data)))
"""


@pytest.mark.parametrize(
    ("words", "hf", "own"),
    [
        ("--do_eval", 0, None),
        ("--deepspeed zero.json --do_eval", 0, None),
        ("--do_train", 1, 1),
        ("--do_train False", 1, None),
        ("--do_train=True", 1, None),
        ("--do_tr", 1, 1),
        ("--bs 8", None, 0),
        ("--per_device_eval_batch_size 4 --output_dir out", 0, None),
        ('"$@"', 1, 1),
        ("$ARGS", 1, 1),
        ("arguments.json", 1, None),
    ],
)
def test_a_command_line_that_asks_for_no_training(words: str, hf: int | None, own: int | None, tmp_path: Path) -> None:
    """One whose words are not all read may ask for it, and so may a file that it names."""
    for program, expected in ((HF, hf), (OWN, own)):
        if expected is not None:
            (tmp_path / "use.py").write_text(program)
            (tmp_path / "run.sh").write_text(f"#!/bin/bash\nexport X=1\npython use.py {words}\n")
            found, _ = build(["run.sh"], Project(tmp_path, Settings()))
            assert len(found) == expected


def test_another_training_is_not_switched_off(tmp_path: Path) -> None:
    program = HF.replace("if training_args.do_eval:", "else:\n    model.fit(data)\nif training_args.do_eval:")
    (tmp_path / "use.py").write_text(program)
    (tmp_path / "run.sh").write_text("#!/bin/bash\npython use.py --do_eval\n")
    assert len(build(["run.sh"], Project(tmp_path, Settings()))[0]) == 1


def test_a_program_without_a_command_line_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(HF)
    assert len(build(["use.py"], Project(tmp_path, Settings()))[0]) == 1
