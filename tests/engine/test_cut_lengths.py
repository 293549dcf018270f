"""The length where samples are cut is no proof of how long they are: an error needs more than it."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.standing import Doubt
from preflight.vocabulary.words import gib

PROGRAM = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from datasets import load_dataset

model = AutoModelForCausalLM.from_pretrained("gpt2")
tokenizer = AutoTokenizer.from_pretrained("gpt2")
data = load_dataset("json", data_files="questions.json")["train"]
data = data.map(lambda rows: tokenizer(rows["text"], CALL), batched=True)
arguments = TrainingArguments("out", per_device_train_batch_size=BATCH, eval_strategy="no", save_strategy="no")
Trainer(model=model, args=arguments, train_dataset=data, tokenizer=tokenizer).train()
"""


@pytest.mark.parametrize(
    ("call", "batch", "verdict"),
    [
        ("truncation=True, max_length=1024", 12, "at-risk"),  # of 512 tokens it fits
        ("truncation=True, max_length=1024", 64, "exceeds"),  # nor of 512 tokens
        ("truncation=True, max_length=512", 64, "exceeds"),  # which some sample of most sets has
        ("padding='max_length', truncation=True, max_length=1024", 12, "exceeds"),  # every sample has them
    ],
)
def test_a_need_of_the_longest_samples(call: str, batch: int, verdict: str, project: Write, tmp_path: Path) -> None:
    project({"train.py": PROGRAM.replace("CALL", call).replace("BATCH", str(batch))})
    [found] = batches(["train.py"], tmp_path, from_hook=False)
    analysis = analyse(*setup(found, CheckOptions(gpu="T4"), tmp_path))
    device = analysis.studies[0].space.worst.estimates.device
    assert device is not None
    assert device.verdict == verdict
    said = [one for one in analysis.findings if one.rule in ("gpu-memory-exceeded", "logits-exceed-gpu")]
    assert [one.severity.value for one in said] == ["warning" if verdict == "at-risk" else "error"]
    if verdict == "at-risk":
        assert [one.doubt for one in device.assumptions] == [Doubt.longest_samples]
        assert "if a sample reaches 1024 tokens" in said[0].headline
        estimate = analysis.studies[0].estimate
        assert estimate is not None
        shorter = estimate(with_fields(analysis.studies[0].space.worst.job, {"train.seq_len": 512})).device
        assert shorter is not None
        assert said[0].notes[0].endswith(f"with 512 tokens it would be {gib(shorter.process.expected)}")
        assert said[0].proposals  # they hold for the longest samples
