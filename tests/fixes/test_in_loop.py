"""Edits of a training loop: each leaves the run as it is, or is not made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from preflight.fixes.edits import edits_in
from preflight.fixes.in_loop import DIVIDED
from preflight.study.build import build
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import splice

LOOP = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from data import data


def contrastive(logits):
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def main(accumulation=1):
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for step, batch in enumerate(DataLoader(data, batch_size=8)):
        with torch.autocast("cuda"):
            outputs = model(**batch)
            loss = outputs.loss
        scaler.scale(loss).backward()
        if (step + 1) % accumulation == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


main()
"""
BACKWARD = "        scaler.scale(loss).backward()\n"
FORWARD, LOSS = "            outputs = model(**batch)\n", "            loss = outputs.loss\n"
LAST = "            optimizer.zero_grad()\n"
KEPT, EMPTIED, DIVISION = (
    Change("train.outputs_kept", "no"), Change("train.empty_cache_every", 1), Change(DIVIDED, True),
)  # fmt: skip


def edited(text: str, change: Change, root: Path) -> str | None:
    """The program after a change; reading it again says what the change says."""
    (root / "train.py").write_bytes(text.encode())
    project = Project(root, Settings())
    (study,), _ = build(["train.py"], project)
    edits = edits_in(change, study, project)
    if not edits:
        return None
    found = splice(text, list(edits))
    ast.parse(found)
    (after,), _ = build(["train.py"], project.with_overlay({"train.py": found}))
    if change is DIVISION:
        assert "loss_undivided" not in after.facts
    else:
        [bound] = {repr(box.fields[change.field].expr) for box in after.boxes}
        assert repr(change.value) in bound
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (KEPT, BACKWARD, f"        del outputs\n{BACKWARD}"),
        (EMPTIED, LAST, f"{LAST}        torch.cuda.empty_cache()\n"),
        (DIVISION, "outputs.loss\n", "outputs.loss / accumulation\n"),
    ],
)
def test_the_edit(change: Change, old: str, new: str, newline: str, tmp_path: Path) -> None:
    found = edited(LOOP.replace("\n", newline), change, tmp_path)
    assert found == LOOP.replace(old, new).replace("\n", newline)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST, f"{LAST}        print(outputs.logits.shape)\n"),  # it is read later
        (LOSS, "            kept = outputs.logits\n            loss = F.mse_loss(kept, 0)\n"),
        (LOSS, "            loss = outputs.loss\n            seen.append(outputs)\n"),
        (FORWARD, FORWARD * 2),
        (FORWARD, "            if step:\n                outputs = model(**batch)\n"),
        (BACKWARD, f"        print(locals())\n{BACKWARD}"),
        (BACKWARD, f"        hook = lambda: outputs\n{BACKWARD}"),
        ("    for step", "    global outputs\n    for step"),
        (BACKWARD, BACKWARD.replace("scaler", "x = 1; scaler")),
    ],
)  # fmt: skip
def test_outputs_that_somebody_may_miss_stay(old: str, new: str, tmp_path: Path) -> None:
    text = LOOP.replace(old, new, 1)
    ast.parse(text)
    assert edited(text, KEPT, tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BACKWARD, f"        if step == 3:\n            continue\n{BACKWARD}"),
        ("import torch\n", "import torch as t\nimport torch.optim\n"),
        (LAST, f"{LAST}        print(); print()\n"),
    ],
)
def test_a_cache_that_would_not_be_emptied_in_each_round(old: str, new: str, tmp_path: Path) -> None:
    text = LOOP.replace(old, new, 1)
    ast.parse(text)
    assert edited(text, EMPTIED, tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("outputs.loss\n", "contrastive(outputs.logits)\n"),
        ("outputs.loss\n", "F.cross_entropy(outputs.logits, batch['labels'])\n"),
    ],
)
def test_the_mean_of_a_loss_function_is_divided(old: str, new: str, tmp_path: Path) -> None:
    text = LOOP.replace(old, new)
    assert edited(text, DIVISION, tmp_path) == text.replace(new, f"{new.strip()} / accumulation\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("outputs.loss\n", "outputs.loss / accumulation\n"),
        ("outputs.loss\n", "outputs.loss\n            loss /= accumulation\n"),
        (BACKWARD, "        scaler.scale(loss / accumulation).backward()\n"),
        (BACKWARD, "        loss.div(accumulation).backward()\n"),
        ("lr=0.1", "lr=0.1 / accumulation"),
        ("    model =", "    accum_steps = accumulation\n    share = 1 / accum_steps\n    model ="),
        ("outputs.loss\n", "F.cross_entropy(outputs.logits, 0, reduction='sum')\n"),
        ("outputs.loss\n", "other(outputs)\n"),
        ("model(**batch)", "model(**batch, num_items_in_batch=9)"),
    ],
)
def test_a_loss_that_may_be_divided_or_no_mean(old: str, new: str, tmp_path: Path) -> None:
    text = LOOP.replace(old, new, 1)
    ast.parse(text)
    assert edited(text, DIVISION, tmp_path) is None


def test_the_three_edits_leave_the_training_as_it_is() -> None:
    """The gradients of a loop with and without them, run."""
    import torch

    plain = """
for step, x in enumerate(batches):
    outputs = model(x)
    loss = torch.nn.functional.mse_loss(outputs, x)
    loss.backward()
    if (step + 1) % n == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    changed = plain.replace("outputs, x)", "outputs, x) / n").replace("    loss.b", "    del outputs\n    loss.b")

    def weights(text: str, n: int, size: int) -> torch.Tensor:
        torch.manual_seed(0)
        model, data = torch.nn.Linear(4, 4), torch.randn(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        exec(
            compile(text, "loop", "exec"),
            {"torch": torch, "model": model, "optimizer": optimizer, "n": n, "batches": data.split(size)},
        )
        return model.weight.detach()

    whole = weights(plain, 1, 8)
    assert torch.equal(weights(changed, 1, 8), whole)
    torch.testing.assert_close(weights(changed, 2, 4), whole)
    assert not torch.allclose(weights(plain, 2, 4), whole, atol=1e-3)
