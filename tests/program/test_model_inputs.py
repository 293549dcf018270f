"""What the model gets of the loader's batch: views that are joined, a batch that is repeated, parts of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

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
