"""Parts of a model that are frozen: exact where the text says which, else unknown, and never "none"."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.program import call_site
from preflight.vocabulary.project import Project
from preflight.vocabulary.values import Value

HEAD = """
import argparse, torch, torchvision, transformers
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--freeze", action="store_true")
args = parser.parse_args()
model = torchvision.models.resnet50(weights="DEFAULT")
"""
OPTIMIZER = "opt = torch.optim.Adam(model.parameters())\n"
LOOP = """
for x, y in DataLoader(data, 4, shuffle=True):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
"""


def told(body: str, tmp_path: Path, optimizer: str = OPTIMIZER, given: dict[str, Value] | None = None) -> Value:
    reading = read_program(HEAD + dedent(body) + optimizer + LOOP, tmp_path)
    return values(reading, given).get("train.frozen")


TRAINED_WHOLE = {
    "nothing": "",
    "a teacher": "teacher = torchvision.models.resnet18()\nteacher.requires_grad_(False)\n",
    "a teacher, parameter by parameter": (
        "teacher = torchvision.models.resnet18()\nfor p in teacher.parameters():\n    p.requires_grad = False\n"
    ),
    "a model beside it": "other = torchvision.models.vgg16()\nother.requires_grad_(False)\n",
    "a count of what is trained": "n = sum(p.numel() for p in model.parameters() if p.requires_grad)\n",
    "thawed": "for p in model.parameters():\n    p.requires_grad = True\n",
    "a function that nothing names": (
        "def freeze(net):\n    for p in net.parameters():\n        p.requires_grad = False\n"
    ),
    "an evaluation": "def evaluate(x):\n    with torch.no_grad():\n        return model(x)\nevaluate(0)\n",
}


@pytest.mark.parametrize("body", TRAINED_WHOLE.values(), ids=TRAINED_WHOLE)
def test_what_freezes_no_part_of_the_model_says_nothing(body: str, tmp_path: Path) -> None:
    assert told(body, tmp_path) is None


LOOP_OF_NAMES = "for name, p in model.named_parameters():\n    "
HEAD_ALONE = ("*", "!fc")
NEW_HEAD = "model.fc = torch.nn.Linear(2048, 9)\n"
WHOLE = "for p in model.parameters():\n    p.requires_grad = False\n"
EXACT = {
    "the whole model, and a new head": (WHOLE + NEW_HEAD, HEAD_ALONE),
    "the whole model at once": ("model.requires_grad_(False)\n" + NEW_HEAD, HEAD_ALONE),
    "call by call": ("for p in model.parameters():\n    p.requires_grad_(False)\n" + NEW_HEAD, HEAD_ALONE),
    "a comprehension": ("[p.requires_grad_(False) for p in model.parameters()]\n" + NEW_HEAD, HEAD_ALONE),
    "a function of the program": (
        "def freeze(net):\n    for p in net.parameters():\n        p.requires_grad = False\nfreeze(model)\n" + NEW_HEAD,
        HEAD_ALONE,
    ),
    "a new layer of a sequence": (WHOLE + "model.fc[-1] = torch.nn.Linear(2048, 9)\n", ("*", "!fc.-1")),
    "a part that is trained again": (
        WHOLE + "for p in model.layer4.parameters():\n    p.requires_grad = True\n",
        ("*", "!layer4"),
    ),
    "a part of a part": (
        "model.layer4.requires_grad_(False)\nmodel.layer4.conv.requires_grad_(True)\n",
        ("layer4", "!layer4.conv"),
    ),
    "all of it trained again": (
        WHOLE + "model.requires_grad_(True)\nmodel.layer1.requires_grad_(False)\n",
        ("layer1",),
    ),
    "a test of the name": (LOOP_OF_NAMES + "if 'fc' not in name:\n        p.requires_grad = False\n", ("*", "!*fc*")),
    "the other way around": (LOOP_OF_NAMES + "if 'layer' in name:\n        p.requires_grad = False\n", ("*layer*",)),
    "both ways": (
        LOOP_OF_NAMES + "if name.startswith('layer4'):\n        p.requires_grad = True\n    else:\n"
        "        p.requires_grad = False\n",
        ("*", "!layer4*"),
    ),
    "an expression": (LOOP_OF_NAMES + "p.requires_grad = 'fc' in name\n", ("*", "!*fc*")),
    "a list of words": (
        "kept = ['layer4', 'fc']\n" + LOOP_OF_NAMES + "if not any(k in name for k in kept):\n"
        "        p.requires_grad = False\n",
        ("*", "!*layer4*", "!*fc*"),
    ),
    "either of two": (
        LOOP_OF_NAMES + "p.requires_grad_('layer4' in name or name.endswith('bias'))\n",
        ("*", "!*layer4*", "!*bias"),
    ),
    "some left out": (
        LOOP_OF_NAMES + "if 'fc' in name:\n        continue\n    p.requires_grad = False\n",
        ("*", "!*fc*"),
    ),
    "names within a part": (
        "for name, p in model.layer4.named_parameters():\n    if 'bn' in name:\n        p.requires_grad = False\n",
        ("layer4.*bn*",),
    ),
    "signs of patterns": (LOOP_OF_NAMES + "if 'a[0]*' in name:\n        p.requires_grad = False\n", ("*a[[]0][*]*",)),
}


@pytest.mark.parametrize(("body", "expected"), EXACT.values(), ids=EXACT)
def test_parts_are_read_in_the_order_of_the_program(body: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    assert told(body, tmp_path) == expected


UNKNOWN = {
    "the whole model, and nothing that is trained": WHOLE,
    "the whole model after its new head": NEW_HEAD + WHOLE,
    "a head of the program": WHOLE + "class Head(torch.nn.Module):\n    pass\nmodel.fc = Head()\n",
    "no layer": WHOLE + "model.fc = torch.nn.Identity()\n",
    "a test of something else": LOOP_OF_NAMES + "if p.dim() > 1:\n        p.requires_grad = False\n",
    "a count": "for i, p in enumerate(model.parameters()):\n    if i < 50:\n        p.requires_grad = False\n",
    "a word that is not known": LOOP_OF_NAMES + "if args.word in name:\n        p.requires_grad = False\n",
    "a list that grows": (
        "kept = ['fc']\nkept.append(args.word)\n" + LOOP_OF_NAMES + "if not any(k in name for k in kept):\n"
        "        p.requires_grad = False\n"
    ),
    "both conditions": LOOP_OF_NAMES + "if 'layer' in name and 'bn' in name:\n        p.requires_grad = False\n",
    "two decisions": (
        LOOP_OF_NAMES + "if 'a' in name:\n        p.requires_grad = False\n    if 'b' in name:\n"
        "        p.requires_grad = True\n"
    ),
    "until one": LOOP_OF_NAMES + "p.requires_grad = False\n    if 'layer3' in name:\n        break\n",
    "children of a list": (
        "for child in list(model.children())[:7]:\n    for p in child.parameters():\n        p.requires_grad = False\n"
    ),
    "one of two models": (
        "if args.freeze:\n    model = load(args)\nelse:\n    model = torchvision.models.resnet18()\n"
        "def train():\n    for p in model.parameters():\n        p.requires_grad = False\ntrain()\n"
    ),
    "a part that is trained again": "model.layer4.requires_grad_(False)\nmodel.layer4[2].requires_grad_(True)\n",
    "layers that are trained again": (
        WHOLE + "for p in list(model.children())[-1].parameters():\n    p.requires_grad = True\n"
    ),
}


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN)
def test_parts_that_the_text_does_not_name_are_unknown(body: str, tmp_path: Path) -> None:
    assert is_unknown(told(body, tmp_path))


def test_a_part_is_exact(tmp_path: Path) -> None:
    body = "model.layer1.requires_grad_(False)\nfor p in model.layer2.parameters():\n    p.requires_grad_(False)\n"
    assert told(body, tmp_path) == ("layer1", "layer2")


@pytest.mark.parametrize(
    ("method", "expected"), [("freeze_feature_encoder", ("feature_extractor",)), ("freeze_encoder", None)]
)
def test_a_method_of_the_library_freezes(method: str, expected: tuple[str, ...] | None, tmp_path: Path) -> None:
    found = told(f"model.{method}()\n", tmp_path)
    assert found == expected if expected else is_unknown(found)


def test_an_index_is_no_name_of_a_module(tmp_path: Path) -> None:
    assert is_unknown(told("model.layer1[0].requires_grad_(False)\n", tmp_path))


def test_a_part_under_one_condition_and_a_part_under_another(tmp_path: Path) -> None:
    body = "if args.freeze:\n    model.layer1.requires_grad_(False)\nmodel.layer2.requires_grad_(False)\n"
    assert is_unknown(told(body, tmp_path, given={"freeze": True}))


def test_an_optimizer_of_the_rest(tmp_path: Path) -> None:
    optimizer = "opt = torch.optim.Adam(model.fc.parameters())\n"
    assert told(WHOLE + NEW_HEAD, tmp_path, optimizer) == HEAD_ALONE
    more = WHOLE + NEW_HEAD + "model.layer4.requires_grad_(True)\n"
    assert is_unknown(told(more, tmp_path, optimizer))  # gradients of layer4, and no states


def test_an_optimizer_of_a_part(tmp_path: Path) -> None:
    assert is_unknown(told("", tmp_path, "opt = torch.optim.Adam(model.fc.parameters())\n"))


def test_a_flag_decides(tmp_path: Path) -> None:
    body = "if args.freeze:\n    for p in model.parameters():\n        p.requires_grad = False\n"
    assert told(body, tmp_path) is None
    assert is_unknown(told(body, tmp_path, given={"freeze": True}))


NET = """
class Net(torch.nn.Module):
    def __init__(self, freeze):
        super().__init__()
        self.net = torchvision.models.resnet50()
        {}
        self.net.fc = torch.nn.Linear(2048, 9)
    def forward(self, x):
        {}
model = Net(args.freeze)
"""


def test_a_backbone_that_runs_without_gradients(tmp_path: Path) -> None:
    body = NET.format("pass", "with torch.no_grad():\n            x = self.net(x)\n        return x")
    assert is_unknown(told(body, tmp_path))


def test_a_model_of_an_own_class(tmp_path: Path) -> None:
    loop = "if freeze:\n            for p in self.net.parameters():\n                p.requires_grad = False"
    body = NET.format(loop, "return self.net(x)")
    assert told(body, tmp_path) is None
    assert told(body, tmp_path, given={"freeze": True}) == HEAD_ALONE


def test_adapters_freeze_the_model_themselves(tmp_path: Path) -> None:
    body = """
    import peft
    model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
    for p in model.parameters():
        p.requires_grad = False
    model = peft.get_peft_model(model, peft.LoraConfig(r=8))
    """
    assert told(body, tmp_path) is None


FREEZES_WITHOUT_ADAPTERS = """
import peft
parser.add_argument("--lora", action="store_true")
args = parser.parse_args()
model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
if args.lora:
    model = peft.get_peft_model(model, peft.LoraConfig(r=8))
{} args.freeze:
    model.requires_grad_(False)
    for p in model.get_decoder().projector.parameters():
        p.requires_grad = True
"""


@pytest.mark.parametrize("beside", ["elif", "if"])
def test_a_run_without_adapters_freezes_what_the_program_freezes(beside: str, tmp_path: Path) -> None:
    body = FREEZES_WITHOUT_ADAPTERS.format(beside)
    assert is_unknown(told(body, tmp_path, given={"freeze": True, "lora": False}))
    assert told(body, tmp_path, given={"freeze": True, "lora": True}) is None
    assert told(body, tmp_path, given={"freeze": False, "lora": False}) is None


SCORER = """
class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torchvision.models.resnet50()
        self.head = torch.nn.Linear(1000, 1)
    def forward(self, x):
        return self.head(self.trunk(x))
def load(path):
    model = Scorer()
    return model
if args.freeze:
    model = load("old.pt")
else:
    model = Scorer()
for p in model.parameters():
    p.requires_grad = False
for p in model.head.parameters():
    p.requires_grad = True
"""


@pytest.mark.parametrize("freeze", [True, False])
def test_both_alternatives_of_a_model_of_one_class_are_frozen(tmp_path: Path, freeze: bool) -> None:
    assert is_unknown(told(SCORER, tmp_path, given={"freeze": freeze}))


def test_the_names_of_a_file_are_collected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether something names a function is asked for each call in it: a walk for each takes quadratic time."""
    asked: list[str] = []
    collect = call_site._names

    def counted(path: str, project: Project) -> frozenset[str]:
        asked.append(path)
        return collect(path, project)

    monkeypatch.setattr(call_site, "_names", counted)
    told("".join(f"def helper_{one}(net):\n    net.half()\n    net.eval()\n" for one in range(20)), tmp_path)
    assert asked == ["train.py"]
