"""What a program leaves to the library is what the stated release does, in a check as in a job by hand."""

from __future__ import annotations

from pathlib import Path

from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches

PROGRAM = """\
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
tokenizer("a text", padding="max_length", truncation=True, max_length=512)
arguments = TrainingArguments("out", per_device_train_batch_size=16, fp16=False, save_strategy="no")
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


def need(root: Path, write: Write, requirements: str) -> int:
    write({"train.py": PROGRAM, "requirements.txt": requirements})
    [found] = batches(["train.py"], root, from_hook=False)
    device = analyse(*setup(found, CheckOptions(gpu="T4"), root)).studies[0].space.worst.estimates.device
    assert device is not None
    return device.requested.expected


def test_an_older_release_computes_attention_step_by_step(project: Write, tmp_path: Path) -> None:
    """BERT has scaled_dot_product_attention from transformers 4.41 on."""
    newer, older = (need(tmp_path, project, f"transformers=={release}\n") for release in ("4.49.0", "4.40.2"))
    # softmax and dropout keep their outputs and a mask, of 12 layers: far more than the scores of one
    assert older - newer > 12 * 16 * 12 * 512 * 512 * 4
