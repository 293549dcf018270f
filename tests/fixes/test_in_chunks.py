"""Evaluation of a whole set: in chunks where the shape is plain, and never of fewer samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.engine.rounds import fixed
from preflight.vocabulary.settings import Settings

LOOP = """\
import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import rows, texts

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", torch_dtype=torch.float32).cuda()
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
optimizer = torch.optim.AdamW(model.parameters())
dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
for batch in DataLoader(dataset, batch_size=8, shuffle=True):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
COUNTED = (
    LOOP
    + """

def evaluate(model, data, num_samples):
    contexts = []
    for i in range(num_samples):
        contexts.append(data[i])
    with torch.no_grad():
        return model(torch.tensor(np.stack(contexts)).cuda()).logits


evaluate(model, rows, 5000)
"""
)


def after_fixes(text: str, root: Path) -> tuple[str, engine.Report]:
    """The program after all fixes, and what is found in it then."""
    (root / "train.py").write_text(text)
    batch = Batch(root, Settings(gpu="T4"), None, ("train.py",), ())
    result = fixed(*engine.setup(batch, engine.CheckOptions(), root), True, lambda report: report)
    return result.texts.get("train.py", text), result.after


@pytest.mark.slow
def test_no_fix_evaluates_fewer_samples(tmp_path: Path) -> None:
    text, after = after_fixes(COUNTED, tmp_path)
    assert "evaluate(model, rows, 5000)" in text
    assert {finding.rule for finding in after.findings} == {"eval-unbatched", "gpu-memory-exceeded"}


WHOLE = (
    LOOP
    + """
model.eval()
with torch.no_grad():
    encoded = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt").to("cuda")
    logits = model(**encoded).logits.argmax(dim=-1)
"""
)
INSIDE = (
    WHOLE.replace("\nmodel.eval()", "\n\n@torch.inference_mode()\ndef evaluate():\n    model.eval()")
    .replace("with torch.no_grad():", "    if rows:")
    .replace("    encoded", "        encoded")
    .replace("    logits", "        logits")
    + "\n\nevaluate()\n"
)
CHUNKS = """logits = torch.cat([
    {}    model(**{key: value[start : start + 256] for key, value in encoded.items()}).logits
    {}    for start in range(0, len(encoded["input_ids"]), 256)
    {}]).argmax(dim=-1)"""


@pytest.mark.parametrize(("text", "indent"), [(WHOLE, ""), (INSIDE, "    ")], ids=["in a file", "in a function"])
def test_a_call_for_each_chunk(text: str, indent: str, tmp_path: Path) -> None:
    found, after = after_fixes(text, tmp_path)
    expected = CHUNKS.replace("{}", indent)
    assert found == text.replace("logits = model(**encoded).logits.argmax(dim=-1)", expected)
    assert not after.findings
    [study] = after.studies
    assert study.space.worst.job.validation.batch_size == 256


def test_the_results_are_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    found, _ = after_fixes(WHOLE, tmp_path)
    expression = found.partition("logits = ")[2]
    weights, sizes = torch.rand(12, 3), []

    def model(input_ids: Any, attention_mask: Any) -> SimpleNamespace:
        sizes.append(len(input_ids))
        return SimpleNamespace(logits=(input_ids * attention_mask).float() @ weights)

    encoded = {"input_ids": torch.randint(100, (600, 12)), "attention_mask": torch.randint(2, (600, 12))}
    names = {"torch": torch, "model": model, "encoded": encoded}
    assert eval(expression, names).equal(model(**encoded).logits.argmax(dim=-1))
    assert sizes == [256, 256, 88, 600]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ForSequenceClassification", "ForMaskedLM"),
        ("ForSequenceClassification", "Model"),
        ("\nmodel.eval()\n", "\n"),
        ("\nmodel.eval()\n", "\nmodel.eval()\nmodel.train()\n"),
        ("torch.no_grad()", "torch.autocast('cuda')"),
        ("model(**encoded)", "model(**encoded, labels=labels)"),
        ("model(**encoded).logits.argmax(dim=-1)", "model(**encoded).loss"),
        ('return_tensors="pt"', 'return_tensors="pt", return_overflowing_tokens=True'),
        ("    logits =", "    encoded = encoded | {}\n    logits ="),
        ("\nmodel.eval()", "\nmodel = wrapped(model)\nmodel.eval()"),
        ("import torch\n", "import torch\nimport torch as model\n"),
    ],
)
def test_other_shapes_are_left_alone(old: str, new: str, tmp_path: Path) -> None:
    text = WHOLE.replace(old, new)
    assert text != WHOLE
    assert "torch.cat" not in after_fixes(text, tmp_path)[0]


GENERATES = (
    LOOP.replace("SequenceClassification", "CausalLM").replace("bert-base-uncased", "gpt2").replace("=8", "=2")
    + """
model.eval()
encoded = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt").to("cuda")
outputs = model.generate(**encoded, max_new_tokens=64, do_sample=False)
answers = tokenizer.batch_decode(outputs, skip_special_tokens=True)
"""
)
ROWS = """outputs = [
    row
    for start in range(0, len(encoded["input_ids"]), 128)
    for row in model.generate(**{key: value[start : start + 128] for key, value in encoded.items()}, \
max_new_tokens=64, do_sample=False)
]
"""


def test_generation_for_each_chunk(tmp_path: Path) -> None:
    found, after = after_fixes(GENERATES, tmp_path)
    whole = "outputs = model.generate(**encoded, max_new_tokens=64, do_sample=False)\n"
    assert found == GENERATES.replace(whole, ROWS)
    assert after.studies[0].space.worst.job.validation.batch_size == 128
    assert not [one for one in after.findings if one.rule == "eval-unbatched"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("do_sample=False", "do_sample=True"),
        ("do_sample=False", "top_k=50"),
        ("do_sample=False", "num_beams=beams()"),
        ("skip_special_tokens=True", "skip_special_tokens=False"),
        ("answers = ", "print(outputs.shape)\nanswers = "),
        ("model.eval()\n", ""),
        ("AutoModelForCausalLM.from_pretrained", "load"),
        ("outputs = model", "outputs, = model"),
    ],
)
def test_generation_of_another_shape_is_left(old: str, new: str, tmp_path: Path) -> None:
    text = GENERATES.replace(old, new)
    assert text != GENERATES
    assert "for row in model" not in after_fixes(text, tmp_path)[0]


@pytest.mark.slow
def test_the_answers_are_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    found, _ = after_fixes(GENERATES, tmp_path)
    expression = found.partition("outputs = ")[2].partition("\nanswers")[0]
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=20, n_positions=128,
                                     bos_token_id=1, eos_token_id=1, pad_token_id=0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    mask = (torch.arange(12) >= torch.randint(0, 9, (300, 1))).long()  # padded on the left, as generation needs it
    encoded = {"input_ids": torch.randint(2, 20, (300, 12)) * mask, "attention_mask": mask}

    def decoded(rows: Any) -> list[list[int]]:
        return [[token for token in row.tolist() if token > 1] for row in rows]

    whole = model.generate(**encoded, max_new_tokens=64, do_sample=False)
    assert decoded(eval(expression, {"model": model, "encoded": encoded})) == decoded(whole)
