"""Texts that are joined and cut into pieces: each sample has the length of a piece, whatever the tokenizer was told."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """\
import argparse
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--block_size", type=int, default={given})
args = parser.parse_args()
tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
if args.block_size is None:
    n = 1024
else:
    n = min(args.block_size, tok.model_max_length)
def encode(rows):
    return tok(rows["text"], truncation=True, max_length=1000)
def pieces(rows):
    {lines}
data = load_dataset("text").map(encode, batched=True).map(pieces, batched=True)
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4), train_dataset=data["train"]).train()
"""
JOINED = """\
joined = {k: sum(rows[k], []) for k in rows.keys()}
total = len(joined["input_ids"]) // n * n
return {k: [t[i : i + n] for i in range(0, total, n)] for k, t in joined.items()}"""
LOOP = """\
ids, made = sum(rows["input_ids"], []), []
for start in range(0, len(ids), n):
    made.append(ids[start : n + start])
return {"input_ids": made}"""
OTHERS = """\
joined = {k: sum(rows[k], []) for k in rows.keys()}
return {k: [t[i : i + 8] for i in range(0, 64, n)] for k, t in joined.items()}"""
LETTERS = 'return {"text": [t[i : i + n] for t in rows["text"] for i in range(0, len(t), n)]}'


def found(lines: str, given: str, root: Path) -> tuple[object, object]:
    text = PROGRAM.replace("{lines}", lines.replace("\n", "\n    ")).replace("{given}", given)
    known = values(read_program(text, root))
    return known.get("train.seq_len"), known.get("train.sequences")


@pytest.mark.parametrize("lines", [JOINED, LOOP])
@pytest.mark.parametrize(("given", "length"), [("None", 1024), ("256", 256)])
def test_pieces_are_packed(lines: str, given: str, length: int, tmp_path: Path) -> None:
    assert found(lines, given, tmp_path) == (length, "packed")


@pytest.mark.parametrize("lines", [OTHERS, LETTERS])
def test_what_is_no_piece_of_tokens_says_nothing(lines: str, tmp_path: Path) -> None:
    assert found(lines, "None", tmp_path) == (1000, "bound")


def test_pieces_of_a_length_that_only_the_tokenizer_knows(tmp_path: Path) -> None:
    cut = JOINED.replace("i + n", "i + tok.model_max_length").replace("total, n", "total, tok.model_max_length")
    length, kind = found(cut, "None", tmp_path)
    assert is_unknown(length)
    assert kind == "packed"


@pytest.mark.parametrize(
    ("made", "length", "kind"),
    [
        ('transformers.TextDataset(tok, "a.txt", 128)', 128, "packed"),
        ('transformers.LineByLineTextDataset(tokenizer=tok, file_path="a.txt", block_size=64)', 64, "bound"),
        ("trl.trainer.ConstantLengthDataset(tok, rows, seq_length=512)", 512, "packed"),
        ("trl.trainer.ConstantLengthDataset(tok, rows)", 1024, "packed"),
    ],
)
def test_data_sets_of_libraries_that_cut_texts(made: str, length: int, kind: str, tmp_path: Path) -> None:
    text = f"""\
import transformers, trl
tok = transformers.AutoTokenizer.from_pretrained("gpt2")
model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
rows = {made}
arguments = transformers.TrainingArguments("out", per_device_train_batch_size=4)
transformers.Trainer(model, arguments, train_dataset=rows).train()
"""
    known = values(read_program(text, tmp_path))
    assert (known.get("train.seq_len"), known.get("train.sequences")) == (length, kind)
