"""Which parts of a program run, and what it takes from its own packages, its loaders and its command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks_as_text import built, value

SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments, Trainer
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
def load(trained):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    if trained:
        model.gradient_checkpointing_enable()
    return model
model = load(arguments.do_train)
if arguments.do_train:
    Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
LOOP = """\
import torch
def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
"""
MAIN = """\
import torch
from torch.utils.data import DataLoader
from parts.loops import (
    train,  # one epoch
)
if __name__ == "__main__":
    train(torch.nn.Linear(8, 8), DataLoader(torch.randn(80, 8), batch_size=16))
"""
AGAIN = """\
import argparse
import torch
from torch.utils.data import DataLoader
class Grouped:
    def __init__(self, loader, size):
        self.loader, self.size = loader, size
    def __iter__(self):
        rows = []
        for row in self.loader:
            rows.append(row)
            if len(rows) == self.size:
                yield torch.stack(rows)
                rows = []
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, num_workers=2)
for batch in Grouped(loader, 32):
    model(batch).sum().backward()
    optimizer.step()
"""
SETTINGS = """\
import sys
import torch
from ast import literal_eval
from torch.utils.data import DataLoader
batch_size = 12
gradient_accumulation_steps = 5
for arg in sys.argv[1:]:
    if "=" not in arg:
        config_file = arg
        exec(open(config_file).read())
    else:
        key, val = arg.split("=")
        globals()[key[2:]] = literal_eval(val)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(data, batch_size=batch_size):
    for micro in range(gradient_accumulation_steps):
        model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("said", ["--do_train", "--do_train True", "--do-train"])
def test_the_command_line_says_that_it_trains(said: str, tmp_path: Path) -> None:
    line = f"python train.py {said} --per_device_train_batch_size 4\n"
    (study,) = built(line, tmp_path, {"train.py": SCRIPT}, name="run.sh")
    assert value(study, "train.gradient_checkpointing") is True


def test_without_a_command_line_both_are_possible(tmp_path: Path) -> None:
    (study,) = built(SCRIPT, tmp_path, name="train.py")
    assert value(study, "train.gradient_checkpointing") == "?"


@pytest.mark.parametrize("package", ["", "from .engine import train\n", "from .engine import *\n"])
def test_a_program_trains_through_a_module_of_a_package(package: str, tmp_path: Path) -> None:
    """The names stand in parentheses; the package has them from another module."""
    home = "parts/loops/engine.py" if package else "parts/loops.py"
    files = {home: LOOP, **({"parts/loops/__init__.py": package} if package else {})}
    (study,) = built(MAIN, tmp_path, files, name="train.py")
    assert value(study, "train.batch_size") == 16


def test_other_names_of_a_package_do_not_make_a_program_train(tmp_path: Path) -> None:
    files = {
        "parts/loops/__init__.py": "from .engine import train\nfrom .shown import plot\n",
        "parts/loops/engine.py": LOOP,
    }
    text = "import torch\nfrom parts.loops import plot\nif __name__ == '__main__':\n    plot()\n"
    assert built(text, tmp_path, {**files, "parts/loops/shown.py": "def plot(): ...\n"}, name="show.py") == []


def test_samples_that_a_class_makes_batches_of(tmp_path: Path) -> None:
    (study,) = built(AGAIN, tmp_path, name="train.py")
    assert value(study, "train.batch_size") == "?"
    assert value(study, "data.workers") == 2
    (known,) = built(AGAIN.replace("data, num", "data, batch_size=4, num"), tmp_path, name="train.py")
    assert value(known, "train.batch_size") == 4


def test_a_program_that_sets_its_own_globals_from_the_command_line(tmp_path: Path) -> None:
    line = "python train.py small.py --gradient_accumulation_steps=3\n"
    (study,) = built(line, tmp_path, {"train.py": SETTINGS, "small.py": "batch_size = 7\n"}, name="run.sh")
    assert [value(study, field) for field in ("train.batch_size", "train.grad_accum")] == [7, 3]


def test_the_optimizer_of_deepspeeds_file(tmp_path: Path) -> None:
    text = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 8)
optimizer = DummyOptim(model.parameters())
for batch in DataLoader(data, batch_size=4):
    Accelerator().backward(model(batch).sum())
    optimizer.step()
"""
    (study,) = built(text, tmp_path, name="train.py")
    assert value(study, "train.optimizer") != "other"


@pytest.mark.parametrize("home", ["LLaMA-Factory/src/train.py", "clone/src/train.py"])
def test_the_script_of_a_cloned_tool_is_its_command(home: str, tmp_path: Path) -> None:
    script = "from llamafactory.train.tuner import run_exp\nif __name__ == '__main__':\n    run_exp()\n"
    settings = (
        "model_name_or_path: gpt2\nstage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: default\n"
        "cutoff_len: 512\nper_device_train_batch_size: 8\nbf16: true\n"
    )
    line = f"torchrun --nproc_per_node 4 {home} x.yaml\n"
    (study,) = built(line, tmp_path, {home: script, "x.yaml": settings}, name="run.sh")
    fields = ("train.batch_size", "train.seq_len", "parallel.ranks_per_node", "train.gradient_checkpointing")
    assert [value(study, field) for field in fields] == [8, 512, 4, True]
