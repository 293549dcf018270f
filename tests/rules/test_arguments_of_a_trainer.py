"""The arguments of a trainer on one line: they are no constant of the batch size."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.api import Safety, check

PROGRAM = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=1024)
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("out", per_device_train_batch_size=64)
Trainer(model=model, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("", True),
        ("print(args.output_dir)", True),
        ("Trainer(model, args)", True),
        ("steps = 1000 // args.per_device_train_batch_size", False),
        ("prepare(args)", False),
    ],
)
def test_accumulation_is_safe_unless_the_batch_is_read_elsewhere(line: str, safe: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{PROGRAM}{line}\n")
    outcome = check(tmp_path / "train.py", gpu="RTX 4090", cwd=tmp_path)
    [fix] = [one.fix for _, one in outcome.findings() if one.rule in ("gpu-memory-exceeded", "logits-exceed-gpu")]
    assert (fix is not None and fix.safety is Safety.safe and "accumulation" in fix.title) is safe
