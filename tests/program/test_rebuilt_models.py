"""A library's model whose layers the program cuts or replaces is not the model of that name."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """\
import copy, torch, torch.nn as nn
from torch.utils.data import DataLoader
from torchvision.models import resnet50
from transformers import AutoModelForSequenceClassification
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)
model = {make}
{change}
model.cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(rows, batch_size=8):
    loss_of(model(x.cuda()), y).backward()
    opt.step()
"""
CUT = """\
class Cut(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers
"""
PARALLEL = """\
def shard(model, size):
    for layer in model.bert.encoder.layer:
        weight = layer.output.dense.weight
        pieces = torch.split(weight, weight.shape[0] // size, dim=0)
        layer.output.dense.weight.data = pieces[rank].to("cuda")
shard(model, 2)
"""
SET = """\
for layer in model.bert.encoder.layer:
    layer.output.dense.weight.data = layer.output.dense.weight.data.normal_(0, 0.02)
    layer.gradient_checkpointing = True
"""
HUB = 'AutoModelForSequenceClassification.from_pretrained("google-bert/bert-base-uncased")'
VISION = "resnet50(pretrained=True)"


def model(make: str, change: str, root: Path) -> object:
    found = values(read_program(PROGRAM.replace("{make}", make).replace("{change}", change), root))
    return found.get("model.name", found.get("model.target"))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (HUB, "model.bert.encoder.layer = model.bert.encoder.layer[:6]"),
        (HUB, "model.bert.encoder.layer = nn.ModuleList([copy.deepcopy(model.bert.encoder.layer[0])])"),
        (HUB, "model.bert.encoder.layer[3].attention.self = Attention()"),
        (HUB, "del model.bert.encoder.layer[6:]"),
        (HUB, "del model.bert.embeddings"),
        (HUB, "model.bert.encoder.layer.pop(0)"),
        (HUB, "layers = model.bert.encoder.layer\nwhile len(layers) > 3:\n    layers.pop(-1)"),
        (HUB, f"{CUT}model = Cut(model.bert.encoder.layer[:6])"),
        (HUB, PARALLEL),
        (VISION, "if len(rows) != 1000:\n    model = resnet50()\n    model.maxpool = nn.Identity()"),
        (VISION, "model.layer4 = nn.Identity()"),
        (VISION, "model.layer3 = nn.Sequential(model.layer3[0], Attention())"),
    ],
)
def test_a_changed_model_is_unknown(make: str, change: str, tmp_path: Path) -> None:
    assert is_unknown(model(make, change, tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (HUB, "model.config.use_cache = False"),
        (HUB, "model.config.names.append('x')"),
        (HUB, f"{CUT}model = Cut([model, model.bert.encoder.layer[:6]])"),
        (HUB, "model.classifier = nn.Sequential(nn.Linear(768, 768), nn.Linear(768, 2))"),
        (HUB, "model.bert.encoder.gradient_checkpointing = False"),
        (HUB, "model.bert.pooler = None"),
        (HUB, SET),
        (VISION, "model.fc = nn.Identity()"),
        (VISION, "model.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)"),
    ],
)
def test_a_head_or_a_setting_leaves_the_model_what_it_is(make: str, change: str, tmp_path: Path) -> None:
    assert isinstance(model(make, change, tmp_path), str)


def test_the_model_of_one_branch_is_not_that_of_another_which_changes_it(tmp_path: Path) -> None:
    change = "if len(rows) != 1000:\n    model = resnet50()\n    model.maxpool = nn.Identity()"
    found = values(read_program(PROGRAM.replace("{make}", VISION).replace("{change}", change), tmp_path))
    assert not {name for name in ("model.name", "model.target") if isinstance(found.get(name), str)}
