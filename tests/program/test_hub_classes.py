"""Classes of a program that extend a model of transformers, and load weights by a name."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.vocabulary.values import Value

PROGRAM = """
import torch
from torch import nn
from transformers import AutoConfig, BertModel, BertPreTrainedModel, Trainer, TrainingArguments

class Scorer(BertPreTrainedModel):
    def __init__(self, config, outputs=3):
        super().__init__(config)
        self.bert = BertModel(config)
        {part}
        self.classifier = nn.Linear(config.hidden_size, outputs)
        {more}
    def forward(self, input_ids, labels=None):
        return self.classifier(self.bert(input_ids)[1])

{model}
Trainer(model, TrainingArguments("out", per_device_train_batch_size=16), train_dataset=data).train()
"""
LOADED = "model = Scorer.from_pretrained('bert-base-uncased'{})"


def told(tmp_path: Path, model: str = LOADED.format(""), part: str = "", more: str = "") -> dict[str, Value]:
    return values(read_program(dedent(PROGRAM.format(model=model, part=part, more=more)), tmp_path))


MODELS = {
    "by name": LOADED.format(""),
    "with an argument of its own": LOADED.format(", outputs=5"),
    "with a setting of the configuration": LOADED.format(", num_labels=5"),
    "with a configuration": "config = AutoConfig.from_pretrained('bert-base-uncased')\n"
    + LOADED.format(", config=config"),
    "without one": LOADED.format(", config=None"),
    "from a configuration": "model = Scorer(AutoConfig.from_pretrained('bert-base-uncased'))",
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_model_is_the_one_that_its_class_holds(model: str, tmp_path: Path) -> None:
    found = told(tmp_path, model)
    assert (found["model.name"], found["task"]) == ("bert-base-uncased", "sequence-classification")
    assert found["train.batch_size"] == 16


def test_what_is_given_to_the_library_decides(tmp_path: Path) -> None:
    found = told(tmp_path, LOADED.format(", torch_dtype=torch.bfloat16, gradient_checkpointing=True"))
    assert (found["train.weights_dtype"], found["train.gradient_checkpointing"]) == ("bf16", True)
    assert told(tmp_path)["train.gradient_checkpointing"] is False


def test_a_class_with_more_large_layers_is_not_its_part(tmp_path: Path) -> None:
    layers = "self.more = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 8), 6)"
    assert is_unknown(told(tmp_path, part=layers)["model.name"])


def test_a_class_that_freezes_its_part(tmp_path: Path) -> None:
    frozen = "for p in self.bert.parameters():\n            p.requires_grad = False"
    assert is_unknown(told(tmp_path, more=frozen)["train.frozen"])
    assert told(tmp_path).get("train.frozen") is None


def test_a_class_that_freezes_a_part_of_its_part(tmp_path: Path) -> None:
    assert told(tmp_path, more="self.bert.embeddings._freeze_parameters()")["train.frozen"] == ("embeddings",)


def test_a_loader_of_its_own_is_followed(tmp_path: Path) -> None:
    own = "@classmethod\n    def from_pretrained(cls, name):\n        return cls(AutoConfig.from_pretrained('gpt2'))"
    text = PROGRAM.replace("    def forward", f"    {own}\n    def forward")
    found = values(read_program(dedent(text.format(model=LOADED.format(""), part="", more="")), tmp_path))
    assert found["model.name"] == "gpt2"
