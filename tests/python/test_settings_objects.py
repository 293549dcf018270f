"""Objects of settings that the program changes after it made them: what is set counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

HEAD = """\
import dataclasses
import os
from dataclasses import dataclass
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Mine:
    small: bool = False

@dataclass
class Ours(TrainingArguments):
    extra: int = 3

def changed(given):
    given.per_device_train_batch_size = 4
    return given

model = AutoModelForCausalLM.from_pretrained("gpt2")
"""
MADE = 'args = TrainingArguments("out", per_device_train_batch_size=16, bf16=True)\n'
PARSED = "mine, args = HfArgumentParser((Mine, TrainingArguments)).parse_args_into_dataclasses()\n"
OURS = "mine, args = HfArgumentParser((Mine, Ours)).parse_args_into_dataclasses()\n"
TRAINER = "trainer = Trainer(model=model, args=args)\n"
SET = "args.per_device_train_batch_size = 4\n"
BATCH, CHECKPOINTING = "train.batch_size", "train.gradient_checkpointing"


def read(text: str, root: Path) -> dict[str, object]:
    return dict(values(read_program(HEAD + text + "trainer.train()\n", root)))


@pytest.mark.parametrize(
    "text",
    [
        MADE + SET + TRAINER,
        PARSED + SET + TRAINER,
        OURS + SET + TRAINER,
        MADE + "setattr(args, 'per_device_train_batch_size', 4)\n" + TRAINER,
        MADE + "args.per_device_train_batch_size //= 4\n" + TRAINER,
        MADE + "args = changed(args)\n" + TRAINER,
        MADE + "args = dataclasses.replace(args, per_device_train_batch_size=4)\n" + TRAINER,
        MADE + TRAINER + "trainer.args.per_device_train_batch_size = 4\n",
        MADE + TRAINER + "changed(trainer.args)\n",
        PARSED + TRAINER + "changed(trainer.args)\n",
        MADE + "class Own(Trainer):\n    pass\ntrainer = Own(model=model, args=args)\nchanged(trainer.args)\n",
    ],
)
def test_what_is_set_counts(text: str, tmp_path: Path) -> None:
    assert read(text, tmp_path)[BATCH] == 4


@pytest.mark.parametrize("made", [MADE, PARSED, OURS])
def test_what_is_set_on_a_condition_is_not_certain(made: str, tmp_path: Path) -> None:
    branch = f"if os.path.exists('x'):\n    {SET}    args.gradient_checkpointing = True\n"
    found = read(made + branch + TRAINER, tmp_path)
    assert is_unknown(found[BATCH])  # type: ignore[arg-type]
    assert is_unknown(found[CHECKPOINTING])  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [PARSED, OURS])
def test_a_condition_that_is_known_decides(made: str, tmp_path: Path) -> None:
    branch = f"if mine.small:\n    {SET}"
    assert read(made + branch + TRAINER, tmp_path)[BATCH] == 8, "the library's default"
    reading = read_program(HEAD + made + branch + TRAINER + "trainer.train()\n", tmp_path)
    assert values(reading, {"small": True})[BATCH] == 4


@pytest.mark.parametrize(
    "change",
    [
        "for key, value in other().items():\n    setattr(args, key, value)\n",
        "args.set_dataloader(train_batch_size=4)\n",
        "args.set_training(batch_size=4)\n",
    ],
)
def test_what_may_be_set_is_unknown(change: str, tmp_path: Path) -> None:
    found = read(MADE + change + TRAINER, tmp_path)
    assert is_unknown(found[BATCH])  # type: ignore[arg-type]
    assert found.get(CHECKPOINTING) is None, "no default of the library holds"


def test_an_attribute_is_what_was_given(tmp_path: Path) -> None:
    text = MADE + "args.gradient_accumulation_steps = 64 // args.per_device_train_batch_size\n" + TRAINER
    assert read(text, tmp_path)["train.grad_accum"] == 4


def test_other_objects_of_settings(tmp_path: Path) -> None:
    text = MADE + "config = LoraConfig(r=8, target_modules=['c_attn'])\nconfig.r = 32\n"
    text += "model = get_peft_model(model, config)\n" + TRAINER
    assert read(text, tmp_path)["train.peft.r"] == 32
    text = MADE + "config = GPT2Config(n_layer=3)\nconfig.n_layer = 5\nmodel = GPT2LMHeadModel(config)\n" + TRAINER
    assert read(text, tmp_path)["model.config.n_layer"] == 5


@pytest.mark.parametrize("made", [MADE, PARSED, OURS])
def test_what_is_set_behind_the_training_says_nothing_of_it(made: str, tmp_path: Path) -> None:
    first = read(made + TRAINER, tmp_path)[BATCH]
    after = values(read_program(HEAD + made + TRAINER + "trainer.train()\n" + SET, tmp_path))
    assert after[BATCH] == first


@pytest.mark.parametrize("made", [MADE, PARSED, OURS])
def test_two_trainings_with_different_values_are_unknown(made: str, tmp_path: Path) -> None:
    text = HEAD + made + TRAINER + "trainer.train()\n" + SET + "trainer.train()\n"
    assert is_unknown(values(read_program(text, tmp_path))[BATCH])


def test_a_call_that_hands_the_object_on_did_not_make_it(tmp_path: Path) -> None:
    text = MADE + "args = changed(args)\nargs.bf16 = False\n" + TRAINER
    found = read(text, tmp_path)
    assert (found[BATCH], found["train.precision"]) == (4, "fp32")


def test_an_object_of_the_projects_own_arguments_is_read(tmp_path: Path) -> None:
    """The parsed object is not what trains: another is made of it."""
    text = OURS + SET + "args = Ours('out', per_device_train_batch_size=args.per_device_train_batch_size, bf16=True,\n"
    text += "            gradient_accumulation_steps=2)\nargs.gradient_checkpointing = True\n" + TRAINER
    found = read(text, tmp_path)
    fields = (BATCH, "train.precision", "train.grad_accum", CHECKPOINTING)
    assert [found[name] for name in fields] == [4, "bf16-mixed", 2, True]
