"""Evaluation of a whole set: no fix evaluates fewer samples."""

from __future__ import annotations

from pathlib import Path

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


def test_no_fix_evaluates_fewer_samples(tmp_path: Path) -> None:
    text, after = after_fixes(COUNTED, tmp_path)
    assert "evaluate(model, rows, 5000)" in text
    assert {finding.rule for finding in after.findings} == {"eval-unbatched", "gpu-memory-exceeded"}
