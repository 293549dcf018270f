"""Hand-written loops and evaluations: accumulation, outputs that live on, whole sets at once."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD, loop
from programs_as_text import facts, is_unknown, read_program, values

# --- loops ------------------------------------------------------------------------------------------------------------


def test_one_step_per_backward_pass(tmp_path: Path) -> None:
    found, known = loop("loss = model(batch).sum()\nloss.backward()\noptimizer.step()", tmp_path)
    assert found["train.grad_accum"] == 1
    assert known["accumulation_supported"] is False
    assert known["framework"] == "hand-written"


def test_a_step_every_so_many_passes(tmp_path: Path) -> None:
    body = """
        loss = model(batch).sum() / args.accum
        loss.backward()
        if (step + 1) % args.accum == 0:
            optimizer.step()
            scheduler.step()
    """
    found, known = loop(body, tmp_path)
    assert found["train.grad_accum"] == 4
    assert known["accumulation_supported"] is True
    assert "scheduler_per_micro_batch" not in known


def test_a_scheduler_stepped_more_often_than_the_optimizer(tmp_path: Path) -> None:
    body = """
        model(batch).sum().backward()
        if (step + 1) % args.accum == 0:
            optimizer.step()
        scheduler.step()
    """
    assert loop(body, tmp_path)[1]["scheduler_per_micro_batch"] is True


def test_micro_batches_in_an_inner_loop(tmp_path: Path) -> None:
    body = """
        for micro in range(args.accum):
            loss = model(batch).sum() / args.accum
            loss.backward()
        optimizer.step()
    """
    assert loop(body, tmp_path)[0]["train.grad_accum"] == 4


def test_micro_batches_whose_loss_is_not_divided(tmp_path: Path) -> None:
    body = """
        for micro in range(args.accum):
            model(batch).sum().backward()
        optimizer.step()
    """
    assert loop(body, tmp_path)[0]["train.grad_accum"] == 4
    assert loop(body.replace("        optimizer", "            optimizer"), tmp_path)[0]["train.grad_accum"] == 1


KEPT = [
    ("model(batch).sum().backward()", "no"),
    ("loss = model(batch).sum()\nloss.backward()", "no"),
    ("outputs = model(batch)\nloss = outputs.sum()\nloss.backward()", "loop"),
    ("outputs = model(batch)\nloss = outputs.sum()\nloss.backward()\ndel outputs", "step"),
    ("outputs = model(batch)\nloss = outputs.sum()\ndel outputs\nloss.backward()", "no"),
    ("logits, loss = model(batch)\nloss = loss / 2\nloss.backward()", "loop"),
]


@pytest.mark.parametrize(("body", "kept"), KEPT)
def test_until_when_outputs_live(body: str, kept: str, tmp_path: Path) -> None:
    assert loop(body, tmp_path)[0]["train.outputs_kept"] == kept


CONTRASTIVE = [
    ("loss = F.cross_entropy(model(batch), batch['label'])", False),
    ("labels = torch.arange(8)\nloss = F.cross_entropy(model(batch), labels)", True),
    ("loss = F.cross_entropy(model(batch), torch.arange(8))", True),
    ("weights = q @ k.transpose(-2, -1)\nloss = model(batch).sum()", False),
    ("logits = image_features @ text_features.T\nloss = F.cross_entropy(logits, labels)", True),
    ("loss = info_nce(model(batch))", True),
    ("loss = model(batch, return_loss=True).loss", True),
]


@pytest.mark.parametrize(("body", "contrastive"), CONTRASTIVE)
def test_losses_that_compare_samples_of_the_batch(body: str, contrastive: bool, tmp_path: Path) -> None:
    known = loop(body + "\nloss.backward()", tmp_path)[1]
    assert known.get("contrastive_loss", False) is contrastive


# --- evaluation -------------------------------------------------------------------------------------------------------

EVALUATION = """
    import numpy as np
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained("m")
    def evaluate(model, data, num_samples, size=64):
        contexts = []
        for i in range(num_samples):
            contexts.append(data[i])
{body}
    evaluate(model, data, 5000)
"""

BATCHED = {
    "slices": """
        for start in range(0, num_samples, size):
            batch = torch.tensor(np.stack(contexts[start:start + size]))
            model.generate(batch, max_new_tokens=8)
    """,
    "a loader": """
        for batch in DataLoader(contexts, size):
            with torch.no_grad():
                model(batch)
    """,
    "one at a time": """
        for context in contexts:
            model.generate(torch.tensor(np.stack([context])), max_new_tokens=8)
    """,
}
WHOLE = {
    "stacked": """
        batch = torch.from_numpy(np.stack(contexts).astype(np.int64)).to("cuda")
        model.generate(batch, max_new_tokens=8)
    """,
    "tensor of a list": """
        with torch.no_grad():
            model(torch.tensor(contexts))
    """,
    "comprehension": """
        batch = torch.stack([torch.tensor(c) for c in contexts])
        model.generate(batch.cuda(), max_new_tokens=8)
    """,
}


def evaluated(body: str, tmp_path: Path) -> tuple[dict[str, object], dict[str, object]]:
    inner = "\n".join("    " + line for line in dedent(body).strip("\n").splitlines())
    text = dedent(EVALUATION.replace("{body}", "\n".join("    " + line for line in inner.splitlines())))
    reading = read_program(HEAD + text, tmp_path)
    return dict(values(reading)), dict(facts(reading))


@pytest.mark.parametrize("how", BATCHED)
def test_evaluation_in_batches(how: str, tmp_path: Path) -> None:
    assert "eval_unbatched" not in evaluated(BATCHED[how], tmp_path)[1]


@pytest.mark.parametrize("how", WHOLE)
def test_evaluation_of_everything_at_once(how: str, tmp_path: Path) -> None:
    assert evaluated(WHOLE[how], tmp_path)[1]["eval_unbatched"] is True


def test_how_many_samples_and_what_is_generated(tmp_path: Path) -> None:
    found, known = evaluated(WHOLE["stacked"], tmp_path)
    assert known["eval_samples"] == 5000
    assert (found["validation.batch_size"], found["validation.max_new_tokens"]) == (5000, 8)
    assert found["validation.generates"] is True


def test_steps_of_a_part_that_runs_every_n_rounds_accumulate_nothing(tmp_path: Path) -> None:
    """`if epoch % n == 0:` around both the backward pass and the step."""
    known = loop("if step % args.accum == 0:\n    model(batch).sum().backward()\n    optimizer.step()", tmp_path)[0]
    assert known["train.grad_accum"] == 1
    known = loop("model(batch).sum().backward()\nif step % args.accum == 0:\n    optimizer.step()", tmp_path)[0]
    assert known["train.grad_accum"] == 4


APEX = """
import argparse, torch
from apex import amp
from torch.utils.data import DataLoader
from torchvision.models import resnet50
parser = argparse.ArgumentParser()
parser.add_argument("--level", default="O1")
args = parser.parse_args()
model = resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer{given})
for x in DataLoader(rows, batch_size=4):
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "fp16-mixed"),
        (', opt_level="O0"', "fp32"),
        (', opt_level="O3"', "fp16"),
        (", opt_level=args.level", "fp16-mixed"),
    ],
)
def test_apex_casts_by_its_level(given: str, expected: str, tmp_path: Path) -> None:
    assert values(read_program(APEX.replace("{given}", given), tmp_path))["train.precision"] == expected


def test_apex_with_weights_in_16_bits_is_unknown(tmp_path: Path) -> None:
    found = values(read_program(APEX.replace("{given}", ', opt_level="O2"'), tmp_path))
    assert is_unknown(found["train.precision"])
