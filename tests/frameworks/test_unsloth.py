"""Unsloth's programs: its own defaults, and checkpoints that wait in host memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, text_at, values

from preflight.vocabulary.values import Value

PROGRAM = """
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained({loaded})
model = FastLanguageModel.get_peft_model(model, {adapted})
SFTTrainer(model=model, train_dataset=data, args=SFTConfig(optim="adamw_8bit", per_device_train_batch_size=2)).train()
"""


def told(root: Path, loaded: str, adapted: str = "r=16") -> dict[str, Value]:
    return values(read_program(PROGRAM.format(loaded=loaded, adapted=adapted), root))


def test_what_nobody_states_is_unsloths(tmp_path: Path) -> None:
    found = told(tmp_path, 'model_name="Qwen/Qwen3-8B", max_seq_length=4096')
    expected = {
        "model.name": "Qwen/Qwen3-8B", "train.seq_len": 4096, "train.quantization.type": "nf4",
        "train.quantization.double_quant": True, "train.weights_dtype": "bf16", "train.peft.r": 16,
        "train.gradient_checkpointing": True, "train.activation_offload": True, "train.optimizer": "adamw-8bit",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert is_unknown(found["train.loss"])
    assert isinstance(found["train.peft.targets"], tuple)
    assert len(found["train.peft.targets"]) == 7


@pytest.mark.parametrize(
    ("loaded", "adapted", "field", "value"),
    [
        ('"unsloth/Llama-3.2-1B-bnb-4bit"', "r=8", "model.name", "Llama-3.2-1B"),
        ('"x/y", load_in_4bit=False', "r=8", "train.quantization.type", "none"),
        ('"x/y", load_in_4bit=False, load_in_8bit=True', "r=8", "train.quantization.type", "int8"),
        ('"x/y", full_finetuning=True', "r=8", "train.quantization.type", "none"),
        ('"x/y"', "r=8, use_gradient_checkpointing=True", "train.activation_offload", False),
        ('"x/y"', "r=8, use_gradient_checkpointing=False", "train.gradient_checkpointing", False),
        ('"x/y"', "r=8, target_modules=['q_proj']", "train.peft.targets", ("q_proj",)),
    ],
)
def test_what_is_stated(loaded: str, adapted: str, field: str, value: Value, tmp_path: Path) -> None:
    assert told(tmp_path, loaded, adapted)[field] == value


def test_the_place_of_smart_checkpointing(tmp_path: Path) -> None:
    text = PROGRAM.format(loaded='"x/y"', adapted='r=8, use_gradient_checkpointing="unsloth"')
    reading = read_program(text, tmp_path)
    assert text_at(reading, "train.activation_offload", tmp_path) == '"unsloth"'


@pytest.mark.parametrize("imported", ["from unsloth import {}, {}", "from unsloth.trainer import {}, {}"])
def test_unsloths_trainer_is_that_of_trl(imported: str, tmp_path: Path) -> None:
    plain = PROGRAM.format(loaded='"Qwen/Qwen3-8B", max_seq_length=512', adapted="r=16")
    line = imported.format("UnslothTrainer", "UnslothTrainingArguments")
    own = plain.replace("from trl import SFTConfig, SFTTrainer", line)
    own = own.replace("SFTTrainer(", "UnslothTrainer(").replace("SFTConfig(", "UnslothTrainingArguments(")
    found, expected = values(read_program(own, tmp_path)), values(read_program(plain, tmp_path))
    del expected["data.imports"]  # trl itself is not imported
    assert found == expected
    assert found["train.batch_size"] == 2
