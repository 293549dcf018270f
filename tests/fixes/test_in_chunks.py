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
