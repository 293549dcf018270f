"""Models and layers of libraries that a class of the project holds: what is counted, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """
import argparse
import timm
import torch
import torchvision
from timm.models.vision_transformer import Block, PatchEmbed
from transformers import AutoConfig, AutoModel

parser = argparse.ArgumentParser()
parser.add_argument("--name", default="bert-base-uncased")
args = parser.parse_args()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
{body}
        self.mix = torch.nn.LSTM(10, 10)

model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""
MIX = 4 * (10 * 20 + 20)
BERT, RESNET = 108_891_648, 23_508_032
COUNTED = {
    "a model of the hub": ('self.a = AutoModel.from_pretrained("bert-base-uncased")', BERT),
    "its name is a setting": ("self.a = AutoModel.from_pretrained(args.name)", BERT),
    "a model of torchvision": ("self.a = torchvision.models.resnet50(weights=None)", RESNET),
    "a model of timm": ('self.a = timm.create_model("resnet50", pretrained=True, num_classes=0)', RESNET),
    "its stages": ('self.a = timm.create_model("resnet50", features_only=True)', RESNET),
    "its stages by their numbers": (
        'self.a = timm.create_model("swin_large_patch4_window12_384", features_only=True, out_indices=(0, 1, 2, 3))',
        195_195_444,
    ),
    "of other samples": (
        'self.a = timm.create_model("resnet50", in_chans=1, features_only=True, out_indices=(-1,))',
        RESNET - 9408,
    ),
    "of another size": ('self.a = timm.create_model("vit_base_patch16_224", img_size=512)', 85_798_656 - 151_296),
    "its children without the head": (
        "net = torchvision.models.resnet50(pretrained=True)\nself.a = torch.nn.Sequential(*list(net.children())[:-1])",
        RESNET,
    ),
    "its children by way of a list": (
        "net = torchvision.models.resnet50()\nlayers = list(net.children())[:-2]\n"
        "self.a = torch.nn.Sequential(*layers)\nself.b = torch.nn.Linear(2048, 7)",
        RESNET + 2048 * 7 + 7,
    ),
    "its children beside itself": (
        "self.net = torchvision.models.resnet50()\nself.a = torch.nn.Sequential(*list(self.net.children())[:-1])",
        RESNET,
    ),
    "with a head of the project's": (
        "self.a = torchvision.models.resnet50()\nself.a.fc = torch.nn.Linear(2048, 7)",
        RESNET + 2048 * 7 + 7,
    ),
    "with another first layer": (
        "self.a = torchvision.models.resnet50()\nself.a.conv1 = torch.nn.Conv2d(1, 64, 7, bias=False)",
        RESNET - 9408 + 64 * 49,
    ),
    "one of the two parts of a model": (
        "from transformers import CLIPVisionModel\n"
        'self.a = CLIPVisionModel.from_pretrained("openai/clip-vit-base-patch32")',
        87_456_000,
    ),
    "an encoder alone": (
        'from transformers import T5EncoderModel\nself.a = T5EncoderModel.from_pretrained("t5-small")',
        35_330_816,
    ),
    "beside its tokenizer": (
        'from transformers import AutoTokenizer\nself.a = AutoModel.from_pretrained("bert-base-uncased")\n'
        'self.tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")',
        BERT,
    ),
    "two of them": (
        'self.a = torchvision.models.resnet50()\nself.b = AutoModel.from_pretrained("bert-base-uncased")',
        RESNET + BERT,
    ),
    "a copy is not trained": (
        "self.a = torchvision.models.resnet50()\nself.teacher = torchvision.models.resnet50()",
        RESNET,
    ),
    "a block of timm": (
        "self.a = Block(64, 4, 4.0, qkv_bias=True)",
        4 * 64 + 4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64,
    ),
    "patches of timm": ("self.a = PatchEmbed(224, 16, 3, 64)", 3 * 64 * 256 + 64),
}
NOT_COUNTED = {
    "other dimensions": 'self.a = AutoModel.from_pretrained("bert-base-uncased", num_hidden_layers=2)',
    "a configuration": 'c = AutoConfig.from_pretrained("x")\nself.a = AutoModel.from_pretrained("gpt2", config=c)',
    "weights in another type": 'self.a = AutoModel.from_pretrained("bert-base-uncased", torch_dtype=torch.bfloat16)',
    "some of its layers": "self.a = torch.nn.Sequential(*list(torchvision.models.resnet50().children())[:-3])",
    "a layer of it is replaced": "self.a = torchvision.models.resnet50()\nself.a.layer4 = torch.nn.Identity()",
    "a part of a model of two": "from transformers import CLIPVisionModelWithProjection as C\n"
    'self.a = C.from_pretrained("openai/clip-vit-base-patch32")',
    "an encoder and a decoder of two models": "from transformers import EncoderDecoderModel as E\n"
    'self.a = E.from_pretrained("bert-base-uncased")',
    "a model that is not known": 'self.a = AutoModel.from_pretrained("some/model")',
    "some of its stages": 'self.a = timm.create_model("resnet50", features_only=True, out_indices=(1, 2))',
    "stages that are not known": 'self.a = timm.create_model("resnet50", features_only=True, out_indices=chosen)',
    "stages of a model that has none": 'self.a = timm.create_model("selecsls42b", features_only=chosen)',
    "children that are not known": "self.a = torch.nn.Sequential(*list(models.resnet50().children())[:-1])",
    "more of its children": "self.a = torch.nn.Sequential(*list(torchvision.models.densenet121().children())[:-2])",
    "children beside a parameter": "self.a = torch.nn.Sequential(*list(torchvision.models.vit_b_16().children())[:-1])",
}


def program(body: str) -> str:
    return PROGRAM.format(body="\n".join(f"        {line}" for line in body.splitlines()))


@pytest.mark.parametrize(("body", "count"), COUNTED.values(), ids=COUNTED)
def test_at_least_the_model_without_its_head(body: str, count: int, tmp_path: Path) -> None:
    found = values(read_program(program(body), tmp_path))
    assert found["model.least_parameters"] == count + MIX
    assert is_unknown(found["model.name"])


@pytest.mark.parametrize("body", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_what_is_changed_below_the_head_is_not_counted(body: str, tmp_path: Path) -> None:
    found = values(read_program(program(body), tmp_path))
    assert "model.least_parameters" not in found
    assert "model.parameters" not in found
    assert is_unknown(found["model.name"])


CHOSEN = """
import argparse
import torch
import models

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="{name}")
args = parser.parse_args()
model = {lookup}()
optimizer = torch.optim.AdamW(model.parameters())
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""
MODELS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width, bias=False)

def small():
    return Net(8)

def large():
    return Net(64)

REGISTRY = {"small": small, "large": large}
"""


@pytest.mark.parametrize(
    "lookup", ["models.__dict__[args.model]", "getattr(models, args.model)", "models.REGISTRY[args.model]"]
)
@pytest.mark.parametrize(("name", "count"), [("small", 64), ("large", 4096)])
def test_a_flag_chooses_what_is_called(lookup: str, name: str, count: int, tmp_path: Path) -> None:
    found = values(read_program(CHOSEN.format(name=name, lookup=lookup), tmp_path, models__py=MODELS))
    assert found["model.parameters"] == count


TIMM = """
import torch, timm.optim
model = torch.nn.Linear(4, 4)
optimizer = timm.optim.create_optimizer_v2(model{more})
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("more", "name"),
    [(', opt="adamw"', "adamw"), ("", "sgd-momentum"), (', opt="lamb"', "other"), (', opt="adafactor"', "other")],
)
def test_the_optimizers_of_timm_by_name(more: str, name: str, tmp_path: Path) -> None:
    assert values(read_program(TIMM.format(more=more), tmp_path))["train.optimizer"] == name
