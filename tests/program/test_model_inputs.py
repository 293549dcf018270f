"""What the model gets of the loader's batch: views that are joined, a batch that is repeated, parts of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.program.passes import _number
from preflight.vocabulary.values import Const, Op, Ref

PROGRAM = """\
import torch
from einops import rearrange
from torch.utils.data import DataLoader
from transformers import AutoModelForImageClassification

def joined(views):
    return torch.cat([views[0], views[1]])

model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for views, labels in DataLoader(rows, batch_size=8):
    {line}
    loss = model({given}).loss
    loss.backward()
    optimizer.step()
"""


def sequences(line: str, root: Path, given: str = "x") -> object:
    found = values(read_program(PROGRAM.replace("{line}", line).replace("{given}", given), root))
    return found.get("train.sequences_per_sample")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = torch.cat([views[0], views[1]], dim=0)", 2),
        ("x = torch.cat([views[0], views[1]]).cuda(non_blocking=True)", 2),
        ("x = torch.concat((views[0], views[1], views[2]))", 3),
        ("x = joined(views)", 2),
        ("x = views.repeat(4, 1, 1, 1)", 4),
        ("x = views.repeat_interleave(3, dim=0)", 3),
    ],
)
def test_several_at_once(line: str, expected: int, tmp_path: Path) -> None:
    assert sequences(line, tmp_path) == expected


@pytest.mark.parametrize(
    "line",
    [
        "x = torch.cat([bank, views])",
        "x = torch.cat([views + noise, views.flip(0)])",
        "x = views.repeat(times, 1, 1, 1)",
        "x = views.view(-1, 3, 224, 224)",
        "x = views.flatten(0, 1)",
        "x = rearrange(views, 'b t c h w -> (b t) c h w')",
        "x = views.view(-1, views.size(-1))",
        "x = views.reshape(-1, views.shape[-1])",
    ],
)
def test_how_many_is_not_known(line: str, tmp_path: Path) -> None:
    assert is_unknown(sequences(line, tmp_path))  # type: ignore[arg-type]


def test_a_part_at_a_time_is_unknown(tmp_path: Path) -> None:
    program = PROGRAM.replace(
        "{line}\n    loss = model({given}).loss", "for x in views.chunk(4):\n        loss = model(x).loss"
    )
    assert is_unknown(values(read_program(program, tmp_path))["train.sequences_per_sample"])


@pytest.mark.parametrize(
    "line",
    [
        "x = views.cuda()",
        "x = torch.cat([views[0], views[1]], dim=1)",
        "x = views.view(-1, 784)",
        "x = rearrange(views, 'b h w c -> b c h w')",
        "x = views[:, :-1]",
        "x = views.repeat(1, 3, 1, 1)",
    ],
)
def test_the_batch_as_it_is(line: str, tmp_path: Path) -> None:
    assert sequences(line, tmp_path) is None


CHOSEN = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--twice", action="store_true")
args = parser.parse_args()
"""
TWICE = "x = views[0]\n    if args.twice:\n        x = torch.cat((x, x), dim=0)"


@pytest.mark.parametrize(("twice", "expected"), [(False, 1), (True, 2)])
def test_a_setting_decides_whether_views_are_joined(twice: bool, expected: int, tmp_path: Path) -> None:
    text = CHOSEN + PROGRAM.replace("{line}", TWICE).replace("{given}", "x")
    assert values(read_program(text, tmp_path), {"twice": twice})["train.sequences_per_sample"] == expected


def test_the_most_of_a_count_that_a_setting_chooses() -> None:
    """A number that the setting is compared with is no count."""
    chosen = Op("if", (Op("==", (Ref("size"), Const(900))), Const(2), Const(1)))
    assert _number(chosen) == 2
    assert _number(Op("max", (Const(3), chosen))) == 3
    assert _number(Ref("size")) == 1


MADE = {
    "tokens": ("torch.randint(0, 50257, (4, 128)).cuda()", {"train.batch_size": 4, "train.seq_len": 128}),
    "images": ("torch.randn(16, 3, 160, 192, device='cuda')", {"train.batch_size": 16, "train.image_size": 192}),
    "features": ("torch.randn(16, 40)", {}),
}


@pytest.mark.parametrize("what", MADE)
def test_tensors_that_the_program_makes(what: str, tmp_path: Path) -> None:
    made, expected = MADE[what]
    body = PROGRAM.replace("for views, labels in DataLoader(rows, batch_size=8):", "for _ in range(9):")
    found = values(read_program(body.replace("{line}", f"x = {made}").replace("{given}", "x"), tmp_path))
    sizes = ("train.batch_size", "train.seq_len", "train.image_size")
    assert {name: found[name] for name in sizes if name in found} == expected


def test_a_data_set_of_tensors_has_the_size_of_its_images(tmp_path: Path) -> None:
    made = "rows = TensorDataset(torch.randn(1000, 3, 160, 160), torch.randint(0, 9, (1000,)))\nmodel ="
    body = PROGRAM.replace("{line}", "x = views").replace("{given}", "x").replace("model =", made, 1)
    text = body.replace("import DataLoader", "import DataLoader, TensorDataset")
    found = values(read_program(text, tmp_path))
    assert (found["train.batch_size"], found["train.image_size"]) == (8, 160)
    assert "train.seq_len" not in found


def test_batches_of_a_data_set_of_the_hub_without_a_loader(tmp_path: Path) -> None:
    body = PROGRAM.replace("DataLoader(rows, batch_size=8)", "rows.shuffle().iter(batch_size=4)")
    checked = "def evaluate():\n    for views in rows.iter(batch_size=64):\n        model(views)\nevaluate()\n"
    text = "import datasets\nrows = datasets.load_dataset('a')\n" + body + checked
    text = text.replace("{line}", "x = views").replace("{given}", "x")
    assert values(read_program(text, tmp_path))["train.batch_size"] == 4


@pytest.mark.parametrize("loop", ["rows.iter(batch_size=1)", "batches"])
def test_a_loop_that_prepares_rows_says_nothing_of_the_batch(loop: str, tmp_path: Path) -> None:
    body = PROGRAM.replace("{line}", "x = views").replace("{given}", "x")
    prepared = f"batches = tqdm(rows.iter(batch_size=1))\nfor row in {loop}:\n    texts.append(row['text'][0])\n"
    text = f"import datasets\nfrom tqdm import tqdm\ntexts = []\nrows = datasets.load_dataset('a')\n{prepared}" + body
    assert values(read_program(text, tmp_path))["train.batch_size"] == 8


def test_batches_of_rows_that_have_a_name(tmp_path: Path) -> None:
    named = "batches = tqdm(rows.iter(batch_size=4))\nfor views, labels in batches:"
    body = PROGRAM.replace("for views, labels in DataLoader(rows, batch_size=8):", named)
    text = "import datasets\nfrom tqdm import tqdm\nrows = datasets.load_dataset('a')\n" + body
    text = text.replace("{line}", "x = views").replace("{given}", "x")
    assert values(read_program(text, tmp_path))["train.batch_size"] == 4
