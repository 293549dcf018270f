"""Programs that train several times: a field that differs between the trainings is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

TRAIN = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

def train(name="gpt2", size=4, length=256, half=False, kind="adamw", less=False, epochs=3):
    tok, model = AutoTokenizer.from_pretrained("gpt2"), AutoModelForCausalLM.from_pretrained(name).cuda()
    if less:
        model.gradient_checkpointing_enable()
    if kind == "sgd":
        optimizer = torch.optim.SGD(model.parameters())
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    data = load().map(lambda row: tok(row["text"], truncation=True, padding="max_length", max_length=length))
    for batch in DataLoader(data, batch_size=size):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()

"""
DIFFERENT = {
    "train(size=4)\ntrain(size=32)": "train.batch_size",
    "train(size=32)\ntrain(size=4)": "train.batch_size",
    "for size in (32, 4): train(size=size)": "train.batch_size",
    "results = [train(size=size) for size in (4, 32)]\nprint(results)": "train.batch_size",
    "train(length=128)\ntrain(length=1024)": "train.seq_len",
    "for length in (1024, 128): train(length=length)": "train.seq_len",
    "for name in ('gpt2', 'gpt2-xl'): train(name)": "model.name",
    "train(half=True)\ntrain(half=False)": "train.precision",
    "train(kind='sgd')\ntrain()": "train.optimizer",
    "train(less=True)\ntrain()": "train.gradient_checkpointing",
    "def run(size): train(size=size)\nrun(4)\nrun(32)": "train.batch_size",
}
EQUAL = {
    "train(size=16)": ("train.batch_size", 16),
    "for seed in range(9):\n    torch.manual_seed(seed)\n    train(size=16)": ("train.batch_size", 16),
    "for epochs in range(9): train(size=16, epochs=epochs)": ("train.batch_size", 16),
    "train(size=16, length=64)\ntrain(size=32, length=64)": ("train.seq_len", 64),
}


@pytest.mark.parametrize("text", DIFFERENT)
def test_what_differs_between_trainings_is_unknown(text: str, tmp_path: Path) -> None:
    assert is_unknown(values(read_program(TRAIN + text + "\n", tmp_path))[DIFFERENT[text]])


@pytest.mark.parametrize("text", EQUAL)
def test_what_all_trainings_have_is_read(text: str, tmp_path: Path) -> None:
    name, value = EQUAL[text]
    assert values(read_program(TRAIN + text + "\n", tmp_path))[name] == value


def test_two_networks_of_one_training_are_no_two_trainings(tmp_path: Path) -> None:
    text = """
import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18

def step(net, optimizer, x):
    net(x).mean().backward()
    optimizer.step()

one, other = resnet18().cuda(), resnet18().cuda()
first, second = torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())
for x in DataLoader(load(), batch_size=16):
    step(one, first, x)
    step(other, second, x)
"""
    assert values(read_program(text, tmp_path))["train.batch_size"] == 16


def test_runs_under_a_condition_that_holds_a_dictionary(tmp_path: Path) -> None:
    kinds = "kinds = {'linear': {'steps': {'warm': 0}}}\n"
    calls = "if kinds.get(sys.argv[1]) is None:\n    train(size=4)\n    train(size=32)\n"
    assert is_unknown(values(read_program("import sys\n" + TRAIN + kinds + calls, tmp_path))["train.batch_size"])


TWO_WAYS = """
import argparse
import os
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

def curriculum(args):
    if not os.path.exists(args.rows):
        {fallback}
    model = AutoModelForSequenceClassification.from_pretrained(args.model)
    Trainer(model, TrainingArguments("out", per_device_train_batch_size={first})).train()

def train(args):
    if not os.path.exists(args.rows):
        return 1
    model = AutoModelForSequenceClassification.from_pretrained(args.model)
    Trainer(model, TrainingArguments("out", per_device_train_batch_size={second})).train()

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="bert-base-uncased")
parser.add_argument("--rows", default="rows.jsonl")
parser.add_argument("--two-phases", action="store_true")
args = parser.parse_args()
if args.two_phases:
    curriculum(args)
else:
    train(args)
"""


@pytest.mark.parametrize("fallback", ["return 1", "return train(args)"])
def test_a_parameter_decides_which_of_two_trainings_is_made(fallback: str, tmp_path: Path) -> None:
    reading = read_program(TWO_WAYS.format(first=4, second=16, fallback=fallback), tmp_path)
    found = values(reading)
    assert (found["model.name"], found["train.batch_size"]) == ("bert-base-uncased", 16)
    assert values(reading, {"model": "gpt2"})["model.name"] == "gpt2"


def test_of_the_other_training_its_own_value_counts(tmp_path: Path) -> None:
    reading = read_program(TWO_WAYS.format(first=4, second=16, fallback="return 1"), tmp_path)
    assert values(reading, {"two_phases": True})["train.batch_size"] == 4


def test_a_training_that_only_a_run_chooses_is_unknown(tmp_path: Path) -> None:
    text = TWO_WAYS.format(first=4, second=16, fallback="return train(args)")
    reading = read_program(text, tmp_path)
    assert is_unknown(values(reading, {"two_phases": True})["train.batch_size"])
