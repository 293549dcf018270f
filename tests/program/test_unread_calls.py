"""Code that was not read and that gets the model: the defaults of what it may change hold no longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, read_program, values

from preflight.vocabulary.values import Unknown

HEAD = """\
import torch
import some_lib
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from some_lib import tune, show_parameters
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
tokenizer = some_lib.tokenizer()
{line}
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=4):
    model(**batch).loss.backward()
    optimizer.step()
"""


def told(line: str, root: Path) -> object:
    return facts(read_program(HEAD.format(line=line), root)).get("changed_by")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("model = some_lib.prepare(model)", "some_lib.prepare"),
        ("model, tokenizer = some_lib.prepare(model, tokenizer)", "some_lib.prepare"),
        ("model = tune(model)", "some_lib.tune"),
        ("some_lib.patch(model, level=3)", "some_lib.patch"),
        ("some_lib.apply(net=model)", "some_lib.apply"),
        ("some_lib.enable_gradient_checkpointing(model)", "some_lib.enable_gradient_checkpointing"),
        ("some_lib.freeze_parameters(model)", "some_lib.freeze_parameters"),
        ("engine = some_lib.Engine()\nengine.attach(model)", "engine.attach"),
        ("trainer = some_lib.FastTrainer(model=model)", "some_lib.FastTrainer"),
    ],
)
def test_what_may_change_the_model(line: str, name: str, tmp_path: Path) -> None:
    assert told(line, tmp_path) == f"{name}() gets the model and was not read"


@pytest.mark.parametrize(
    "line",
    [
        "show_parameters(model)",
        "some_lib.count_parameters(model)",
        "import wandb; wandb.watch(model)",
        "import torchinfo; torchinfo.summary(model)",
        "some_lib.save_checkpoint(model, 'x')",
        "some_lib.evaluate(model)",
        "optimizer = some_lib.make_optimizer(model)",
        "some_lib.prepare(tokenizer)",
        "model = torch.compile(model)",
        "from accelerate import Accelerator; model = Accelerator().prepare(model)",
        "def own(net):\n    return net\nmodel = own(model)",
    ],
)
def test_what_leaves_the_model(line: str, tmp_path: Path) -> None:
    assert told(line, tmp_path) is None


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("model.enable_gradient_checkpointing()", "train.gradient_checkpointing", True),
        ("model.gradient_checkpointing_enable(); model.disable_gradient_checkpointing()",
         "train.gradient_checkpointing", False),
        ("model.enable_xformers_memory_efficient_attention()", "train.attention", "efficient"),
        ("model.set_attn_processor(some_lib.Fast())", "train.attention", None),
        ("from colossalai.nn.optimizer import HybridAdam; HybridAdam(model.parameters())", "parallel.strategy", None),
        ("model.gradient_checkpointing = True", "train.gradient_checkpointing", None),
        ("model.config.gradient_checkpointing = True", "train.gradient_checkpointing", None),
        ("setattr(model, 'use_gradient_checkpointing', True)", "train.gradient_checkpointing", None),
    ],
)  # fmt: skip
def test_switches_of_a_library_s_model(line: str, field: str, value: object, tmp_path: Path) -> None:
    found = values(read_program(HEAD.format(line=line), tmp_path))[field]
    assert isinstance(found, Unknown) if value is None else found == value


@pytest.mark.parametrize("line", ["args.gradient_checkpointing = True", "model.gradient_checkpointing = False"])
def test_settings_are_no_switch_of_the_model(line: str, tmp_path: Path) -> None:
    found = values(read_program(HEAD.format(line=line), tmp_path))
    assert not isinstance(found.get("train.gradient_checkpointing"), Unknown)


TRAINER = """\
import wandb
from some_lib import tune, log_parameters
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows)
{line}
trainer.train()
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tune(trainer)", "some_lib.tune() gets the trainer and was not read"),
        ("log_parameters(trainer)", None),
        ("wandb.config.update(trainer.args)", None),
    ],
)
def test_what_may_change_the_trainer(line: str, said: str | None, tmp_path: Path) -> None:
    assert facts(read_program(TRAINER.format(line=line), tmp_path)).get("changed_by") == said


OPEN = """
import json
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
extra = json.load(open("/data/extra.json"))
known = {{"bf16": True}}
model = AutoModelForCausalLM.from_pretrained("gpt2"{model})
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4{arguments})).train()
"""


@pytest.mark.parametrize(
    ("model", "arguments", "name"),
    [
        ("", ", **extra", "TrainingArguments()"),
        (", **extra", "", "from_pretrained()"),
        ("", ", **known", None),
        ("", ", **dict(fp16=True)", None),
    ],
)
def test_arguments_of_a_mapping_that_was_not_read(model: str, arguments: str, name: str | None, tmp_path: Path) -> None:
    found = facts(read_program(OPEN.format(model=model, arguments=arguments), tmp_path)).get("open_arguments")
    assert found is None if name is None else str(found).startswith(name)


def test_settings_handed_on_as_a_mapping(tmp_path: Path) -> None:
    """`SFTConfig(**TrainingArguments(...).to_dict())`: what the first was made with is read, its defaults are not."""
    body = """
from transformers import TrainingArguments
from trl import SFTConfig, SFTTrainer
first = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=8)
SFTTrainer("gpt2", args=SFTConfig(packing=True, **first.to_dict())).train()
"""
    reading = read_program(body, tmp_path)
    found = values(reading)
    assert (found["train.batch_size"], found["train.grad_accum"], found["train.sequences"]) == (4, 8, "packed")
    assert "open_arguments" in facts(reading)
