"""Tokens of sources and of targets: which length is whose."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """\
import random
from datasets import load_dataset
from transformers import {kind}, AutoTokenizer, Seq2SeqTrainer, Seq2SeqTrainingArguments
tok = AutoTokenizer.from_pretrained("t5-small")
model = {kind}.from_pretrained("t5-small")
def encode(text, n):
    return tok(text, max_length=n, truncation=True)
def prepare(rows):
    {lines}
    return x
data = load_dataset("text").map(prepare, batched=True)
args = Seq2SeqTrainingArguments("out", per_device_train_batch_size=4)
Seq2SeqTrainer(model, args, train_dataset=data["train"]).train()
"""


def lengths(lines: str, root: Path, kind: str = "AutoModelForSeq2SeqLM") -> tuple[object, object]:
    text = PROGRAM.replace("{lines}", lines.replace("\n", "\n    ")).replace("{kind}", kind)
    found = values(read_program(text, root))
    return found.get("train.seq_len"), found.get("train.target_len")


SOURCE = 'x = tok(rows["source"], max_length=512, truncation=True)\n'


@pytest.mark.parametrize(
    "lines",
    [
        SOURCE + 'x["labels"] = tok(rows["to"], max_length=64, truncation=True)["input_ids"]',
        SOURCE + 'x["labels"] = tok(rows["to"], max_length=64, truncation=True).input_ids',
        SOURCE + 'labels = tok(text_target=rows["to"], max_length=64, truncation=True)',
        SOURCE + 'y = tok(rows["summary"], max_length=64, truncation=True)',
        SOURCE + 'with tok.as_target_tokenizer():\n    y = tok(rows["to"], max_length=64, truncation=True)',
        'x = encode(rows["article"], 512)\ny = encode(rows["highlights"], 64)',
        'y = tok(rows["tgt"], max_length=64, truncation=True)\nx = tok(rows["src"], max_length=512, truncation=True)',
    ],
)
def test_the_source_and_the_target(lines: str, tmp_path: Path) -> None:
    assert lengths(lines, tmp_path) == (512, 64)


@pytest.mark.parametrize("kind", ["AutoModelForSeq2SeqLM", "AutoModelForCausalLM"])
def test_lengths_of_which_the_text_does_not_say_whose_they_are(kind: str, tmp_path: Path) -> None:
    lines = 'x = tok(rows["one"], max_length=512)\ny = tok(rows["two"], max_length=64)'
    assert is_unknown(lengths(lines, tmp_path, kind)[0])  # type: ignore[arg-type]


def test_a_prompt_and_an_answer_of_a_decoder_are_one_sample(tmp_path: Path) -> None:
    lines = 'x = tok(rows["input"], max_length=512)\nlabels = tok(rows["output"], max_length=64)'
    assert is_unknown(lengths(lines, tmp_path, "AutoModelForCausalLM")[0])  # type: ignore[arg-type]


def test_a_condition_that_only_a_run_decides_chooses_the_length(tmp_path: Path) -> None:
    lines = "if random.random() < 0.5:\n    x = encode(rows, 512)\nelse:\n    x = encode(rows, 64)"
    assert is_unknown(lengths(lines, tmp_path)[0])  # type: ignore[arg-type]


def test_the_same_length_twice_is_that_length(tmp_path: Path) -> None:
    lines = 'x = tok(rows["one"], max_length=512)\ny = tok(rows["two"], max_length=512)'
    assert lengths(lines, tmp_path)[0] == 512
