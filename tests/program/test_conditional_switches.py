"""What a program switches on where a flag says so, or where only a run tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.vocabulary.values import Cause, Unknown

PROGRAM = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--small", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
{line}
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=8):
    model(**batch).loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "line",
    [
        "if args.small:\n    model.half()",
        "model.to(torch.float16 if args.small else torch.float32)",
        "dtype = torch.float32\nif args.small:\n    dtype = torch.float16\nmodel.to(dtype=dtype)",
        "if args.small:\n    torch.set_default_dtype(torch.float16)",
    ],
)
def test_a_flag_decides_the_type_of_the_weights(line: str, tmp_path: Path) -> None:
    reading = read_program(PROGRAM.replace("{line}", line), tmp_path)
    assert values(reading).get("train.weights_dtype") in (None, "fp32")
    assert values(reading, {"small": True})["train.weights_dtype"] == "fp16"


@pytest.mark.parametrize(
    "line",
    [
        "model = model.double()",
        "model.to(torch.float64)",
        "torch.set_default_dtype(torch.double)",
        "torch.set_default_tensor_type(torch.DoubleTensor)",
    ],
)
def test_weights_in_fp64_are_not_those_in_fp32(line: str, tmp_path: Path) -> None:
    reading = read_program(PROGRAM.replace("{line}", line), tmp_path)
    why = values(reading)["train.precision"]
    assert isinstance(why, Unknown)
    assert why.cause is Cause.not_modelled


@pytest.mark.parametrize("line", ["x = torch.zeros(3).double()", 'torch.set_default_tensor_type("torch.FloatTensor")'])
def test_other_tensors_and_fp32_change_no_weights(line: str, tmp_path: Path) -> None:
    assert "train.weights_dtype" not in values(read_program(PROGRAM.replace("{line}", line), tmp_path))


def test_a_type_that_only_a_run_decides_is_unknown(tmp_path: Path) -> None:
    reading = read_program(PROGRAM.replace("{line}", "if os.path.exists('x'):\n    model.half()"), tmp_path)
    assert is_unknown(values(reading)["train.weights_dtype"])


@pytest.mark.parametrize(
    ("line", "perhaps"),
    [
        ("model.gradient_checkpointing_enable()", False),
        ("if args.small:\n    model.gradient_checkpointing_enable()", False),
        ("if os.path.exists('x'):\n    model.gradient_checkpointing_enable()", True),
        (
            "if os.path.exists('x'):\n    model.gradient_checkpointing_enable()\n"
            "if args.small:\n    model.gradient_checkpointing_disable()",
            True,
        ),
    ],
)
def test_a_switch_behind_a_condition_that_only_a_run_decides_is_no_certainty(
    line: str, perhaps: bool, tmp_path: Path
) -> None:
    reading = read_program(PROGRAM.replace("{line}", line), tmp_path)
    [found] = [one for one in reading.bindings if one.field == "train.gradient_checkpointing"]
    assert found.perhaps is perhaps


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torch.backends.cuda.matmul.allow_tf32 = True", True),
        ("if torch.cuda.is_available():\n    torch.backends.cuda.matmul.allow_tf32 = True", True),
        ("if args.small:\n    torch.backends.cuda.matmul.allow_tf32 = False", False),
        ("if args.small:\n    torch.backends.cuda.matmul.allow_tf32 = True", None),
    ],
)
def test_a_switch_of_a_backend_under_a_condition(line: str, found: bool | None, tmp_path: Path) -> None:
    said = values(read_program(PROGRAM.replace("{line}", line), tmp_path))["train.tf32"]
    assert is_unknown(said) if found is None else said is found


TRAINED = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--flag", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
{line}
Trainer(model, TrainingArguments("out", gradient_checkpointing={given})).train()
"""


@pytest.mark.parametrize(
    ("line", "given", "flag", "expected"),
    [
        ("model.gradient_checkpointing_enable()", "False", False, True),
        ("model.gradient_checkpointing_enable()", "args.flag", False, True),
        ("model.gradient_checkpointing_enable()", "True", False, True),
        ("model.gradient_checkpointing_disable()", "False", False, False),
        ("model.gradient_checkpointing_disable()", "args.flag", True, True),
        ("if args.flag:\n    model.gradient_checkpointing_enable()", "False", False, None),
        ("if args.flag:\n    model.gradient_checkpointing_enable()", "False", True, True),
        ("", "False", False, False),
    ],
)
def test_a_trainer_does_not_switch_checkpointing_off(
    line: str, given: str, flag: bool, expected: bool | None, tmp_path: Path
) -> None:
    reading = read_program(TRAINED.replace("{line}", line).replace("{given}", given), tmp_path)
    assert (values(reading, {"flag": flag}).get("train.gradient_checkpointing") or None) is (expected or None)
