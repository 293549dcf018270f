"""No checkpoint before the first validation: where the trainer's arguments say so, and where nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, read_program

TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from data import train, held_out
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments("out", {arguments})
trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=held_out{more})
trainer.train({start})
trainer.save_model("out")
"""
LIGHTNING = """
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn, optim, utils
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)
    def training_step(self, batch, index):
        return self.net(batch).sum()
    def configure_optimizers(self):
        return optim.AdamW(self.parameters())
trainer = L.Trainer({arguments})
trainer.fit(Module(), utils.data.DataLoader([], batch_size=8), utils.data.DataLoader([], batch_size=8){start})
"""


def late(text: str, root: Path, **parts: str) -> bool:
    filled = text.format(**{"arguments": "", "more": "", "start": "", **parts})
    return facts(read_program(filled, root)).get("saves_late") is True


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('eval_strategy="epoch", save_strategy="epoch"', True),
        ('evaluation_strategy="epoch", save_strategy="no"', True),
        ('eval_strategy="steps", eval_steps=200', True),  # saved every 500 steps
        ('eval_strategy="steps", eval_steps=0.1, save_steps=0.2', True),
        ('eval_strategy="steps"', True),  # both after 500: the evaluation comes first
        ('eval_strategy="steps", eval_steps=1000', False),
        ('eval_strategy="epoch"', False),  # an epoch may have more than 500 steps
        ('eval_strategy="steps", eval_steps=0.1', False),
        ('eval_strategy="epoch", save_strategy="epoch", eval_delay=2', False),
        ('save_strategy="no"', False),  # nothing is evaluated
        ('eval_strategy="epoch", save_strategy=kept', False),
        ('eval_strategy="steps", eval_steps=kept', False),
        ('eval_strategy="steps", eval_steps=100, save_steps=kept', False),
        ('eval_strategy="epoch", save_strategy="epoch", eval_delay=kept', False),
        ('**options, save_strategy="no", eval_strategy="epoch"', False),
    ],
)
def test_transformers(arguments: str, expected: bool, tmp_path: Path) -> None:
    assert late(TRAINER, tmp_path, arguments=arguments) is expected


@pytest.mark.parametrize(
    "parts",
    [{"start": 'resume_from_checkpoint="out"'}, {"more": ", callbacks=[Saving()]"}, {"more": ", callbacks=given"}],
    ids=["resumed", "a callback of the program", "callbacks that are not known"],
)
def test_what_may_save_or_was_saved(parts: dict[str, str], tmp_path: Path) -> None:
    text = TRAINER.replace("model =", "class Saving:\n    pass\nmodel =")
    assert late(text, tmp_path, arguments='eval_strategy="epoch", save_strategy="epoch"') is True
    assert late(text, tmp_path, arguments='eval_strategy="epoch", save_strategy="epoch"', **parts) is False


@pytest.mark.parametrize(
    ("arguments", "start", "expected"),
    [
        ("", "", True),
        ("enable_checkpointing=False", "", True),
        ("callbacks=[ModelCheckpoint('out', save_top_k=3)]", "", True),
        ("callbacks=[ModelCheckpoint('out', every_n_train_steps=100)]", "", False),
        ("callbacks=given", "", False),
        ("", ", ckpt_path='last.ckpt'", False),
    ],
)
def test_lightning(arguments: str, start: str, expected: bool, tmp_path: Path) -> None:
    assert late(LIGHTNING, tmp_path, arguments=arguments, start=start) is expected


def test_a_module_that_saves_in_its_steps(tmp_path: Path) -> None:
    text = LIGHTNING.replace("return self.net", "self.trainer.save_checkpoint('a')\n        return self.net")
    assert late(text, tmp_path) is False
