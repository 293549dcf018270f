"""The parameters of a program's own modules, counted from `__init__`, against those that torch makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, evaluate

PROGRAM = """
import argparse
import torch
from torch import nn
{classes}

class Net(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
{body}
    def forward(self, x):
        return self.out(x)

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=24)
parser.add_argument("--depth", type=int, default=2)
args = parser.parse_args([])
model = Net(args.width, args.depth).to("cuda")
"""
TRAINING = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, 2 * size)
        self.norm = nn.LayerNorm(2 * size)
"""


def program(body: str, classes: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return PROGRAM.format(body=lines, classes=classes)


def made_by_torch(body: str, classes: str) -> int:
    """The parameters of the model that the program makes, counted by torch."""
    pytest.importorskip("torch")
    scope: dict[str, object] = {}
    exec(program(body, classes).replace('.to("cuda")', ""), scope)
    return sum(one.numel() for one in scope["model"].parameters())  # type: ignore[attr-defined]


def read(tmp_path: Path, body: str, classes: str = "") -> dict[str, object]:
    return values(read_program(program(body, classes) + TRAINING, tmp_path))


@pytest.mark.parametrize(
    "body",
    [
        "self.body = timm.create_model('resnet18')\nself.out = nn.Linear(width, 10)",
        "self.body = transformers.BertModel.from_pretrained('bert-base-uncased')\nself.out = nn.Linear(width, 10)",
        "self.body = torchvision.models.resnet18()\nself.out = nn.Linear(width, 10)",
        "self.a = nn.Linear(2, 8)\nself.out = nn.ModuleList()\nfor _ in names:\n    self.out.append(nn.Linear(8, 8))",
        "self.a = nn.Linear(2, 8)\nself.out = nn.Sequential(*blocks())",
    ],
)
def test_what_may_be_most_of_the_model_is_not_left_out(tmp_path: Path, body: str) -> None:
    found = read(tmp_path, body, "import timm, torchvision, transformers")
    assert not found.keys() & {"model.parameters", "model.least_parameters"}


@pytest.mark.parametrize("given", ["args=args, model=model", "None, model", "model=model, config=settings"])
def test_deepspeed_trains_what_it_gets(tmp_path: Path, given: str) -> None:
    training = f"""
import deepspeed
engine, _, _, _ = deepspeed.initialize({given}, model_parameters=model.parameters())
for x in data:
    engine.backward(engine(x).sum())
    engine.step()
"""
    found = values(read_program(program("self.out = nn.Linear(4, 10)") + training, tmp_path))
    assert found["model.parameters"] == 50


def test_a_subclass_of_a_librarys_model_has_its_parameters_too(tmp_path: Path) -> None:
    text = program("self.out = nn.Linear(width, 10)").replace("nn.Module", "torchvision.models.ResNet")
    found = values(read_program("import torchvision\n" + text + TRAINING, tmp_path))
    assert not found.keys() & {"model.parameters", "model.least_parameters"}


def test_without_training_nothing_is_counted(tmp_path: Path) -> None:
    found = values(read_program(program("self.out = nn.Linear(width, 10)"), tmp_path))
    assert "model.parameters" not in found


@pytest.mark.parametrize(
    "body",
    [
        "self.a = nn.Linear(width, 8)\nself.out = nn.Linear(len(open('labels').readlines()), 8)",
        "self.a = nn.Linear(width, 8)\nself.out = nn.ModuleList()\nfor i in range(depth):\n    if ask(i):\n"
        "        self.out.append(nn.Linear(8, 8))",
        "self.a = nn.Linear(width, 8)\nif torch.rand(1) > 0.5:\n    self.out = nn.Linear(8, 8)",
        "self.a = nn.Linear(width, 8)\nself.out = nn.Parameter(table)",
        "self.a = nn.Linear(width, 8)\nself.out = nn.Linear(4, 4) if torch.rand(1) else nn.Identity()",
    ],
)
def test_what_is_known_of_a_model_is_the_least(tmp_path: Path, body: str) -> None:
    found = read(tmp_path, body)
    assert found["model.least_parameters"] == 24 * 8 + 8
    assert "model.parameters" not in found


LARGE_BLOCK = (
    "class Large(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
    "        self.inner = nn.ModuleList()\n        self.inner.append(nn.Linear(size, size))\n"
    "        for _ in range(3):\n            self.inner.append(nn.Linear(size, 2))\n"
    + "".join(f"        self.l{i} = nn.Linear(size, 2)\n        self.n{i} = nn.LayerNorm(2)\n" for i in range(30))
)
"""A layer whose making takes so many steps that a loop over some of them is not followed to its end."""
MANY = "self.out = nn.ModuleList()\nfor i in range(40):\n    "


@pytest.mark.parametrize(
    "body",
    [
        MANY + "self.out.append(Large(width))",
        MANY + "layer = Large(width)\n    self.out.append(copy.deepcopy(layer))",
        "self.out = nn.ModuleList()\nfor i in range(depth):\n    self.out.append(Large(width))",
        MANY + "self.out.append(Large(width))\nself.more = nn.ModuleList()\nself.more.append(nn.Linear(3, 3))",
    ],
)
def test_a_long_loop_makes_as_many_layers_as_it_has_rounds(tmp_path: Path, body: str) -> None:
    classes = f"import copy\n{LARGE_BLOCK}"
    found = read(tmp_path, body, classes)
    assert found["model.parameters"] == made_by_torch(body, classes)
    assert found.get("train.copies.ema") is None


@pytest.mark.parametrize("leaves", ["break", "continue"])
def test_a_long_loop_that_a_round_may_leave_makes_an_unknown_number(tmp_path: Path, leaves: str) -> None:
    body = MANY + f"if ask(i):\n        {leaves}\n    self.out.append(Large(width))"
    assert not read(tmp_path, body, LARGE_BLOCK).keys() & {"model.parameters", "model.least_parameters"}


def test_a_long_loop_whose_rounds_differ_is_no_count(tmp_path: Path) -> None:
    body = MANY + "self.out.append(Large(width + i))"
    found = read(tmp_path, body, LARGE_BLOCK)
    least = found.get("model.least_parameters", 0)
    assert "model.parameters" not in found
    assert isinstance(least, int)
    assert least < made_by_torch(body, LARGE_BLOCK)


def test_an_object_of_settings_is_chosen_by_name(tmp_path: Path) -> None:
    classes = """
import ml_collections
def settings(size):
    made = ml_collections.ConfigDict()
    made.body = ml_collections.ConfigDict({"size": size})
    return made
CHOICES = {"small": settings(8), "large": settings(16)}
chosen = argparse.ArgumentParser()
chosen.add_argument("--name", default="large")
choice = CHOICES[chosen.parse_args().name]
"""
    assert read(tmp_path, "self.out = nn.Linear(choice.body.size, 4)", classes)["model.parameters"] == 17 * 4


def test_the_class_is_named(tmp_path: Path) -> None:
    why = read(tmp_path, "self.out = nn.Linear(width, 10)")["model.name"]
    assert isinstance(why, Unknown)
    assert "what is trained is Net, a class of the project (train.py, line 7)" in why.words


CHANGED = """
class Sized(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)

class Stack(nn.ModuleList):
    pass

class Wide(nn.Linear):
    def __init__(self, size):
        super().__init__(size, 2 * size)

class Nested(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.below = Nested(depth - 1) if depth else None

class Swapped(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.held, self.out = how, nn.Linear(900, 900), nn.Linear(2, 2)
        self.part = nn.Linear(3, 3)

    @property
    def part(self):
        return self.held

    @part.setter
    def part(self, layer):
        if self.how == "plain":
            self.held = layer
        elif self.how == "named":
            setattr(self, "he" + "ld", layer)
        elif self.how == "modules":
            self.__dict__["_modules"]["held"] = layer
        else:
            put(self, layer)

class Renaming(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.held = nn.Linear(2, 2), nn.Linear(900, 900)
        self.part = nn.Linear(3, 3)

    def __setattr__(self, name, value):
        super().__setattr__("held" if name == "part" else name, value)

class WithFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.held = nn.Linear(2, 2), nn.Linear(900, 900)
        self.part = nn.Linear(3, 3)

    def get(self):
        return self.held

    def set(self, layer):
        self.held = layer

    part = property(get, set)

put = eval("lambda module, layer: module.add_module('held', layer)")

def shrink(module):
    for name, part in module.named_children():
        setattr(module, name, nn.Linear(2, 2))
"""
STATES = [
    # weights that layers share
    "self.a = nn.ModuleList([nn.Embedding(50, 8) for _ in range(3)])\n"
    "self.out = nn.ModuleList([nn.Linear(8, 50) for _ in range(3)])\n"
    "for one, other in zip(self.a, self.out):\n    other.weight = one.weight",
    "self.out = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])\n"
    "for i in range(1, 4):\n    self.out[i].weight = self.out[0].weight",
    "self.out = nn.ModuleList([Block(8) for _ in range(depth)])\n"
    "for block in self.out:\n    block.layer = self.out[0].layer",
    "self.p = nn.Parameter(torch.zeros(8, 8))\nself.out = nn.Linear(8, 8)\nself.out.weight = self.p",
    # parts that are replaced or removed
    "self.out = nn.Linear(900, 900)\nself.b = nn.Linear(2, 2)\ndel self.out",
    "self.out = nn.Linear(900, 900)\nself.b = nn.Linear(2, 2)\ndelattr(self, 'out')",
    "self.out = nn.Linear(900, 900)\nself.add_module('out', nn.Linear(2, 2))",
    "self.out = nn.Sequential(nn.Linear(900, 900), nn.Linear(2, 2))\nself.out[0] = nn.Identity()",
    "self.out = nn.Sequential(nn.Linear(900, 900), nn.Linear(2, 2))\ndel self.out[0]",
    "self.out = nn.ModuleDict({'a': nn.Linear(900, 900)})\nself.out.pop('a')\nself.out.update({'b': Block(2)})",
    "self.out = nn.Linear(900, 900)\nself.b = nn.Linear(2, 2)\nself._modules.pop('out')",
    "self.out = nn.Linear(900, 900)\nself.b = nn.Linear(2, 2)\nshrink(self)",
    "self.out = nn.Linear(8, 8)\nself.out.weight = nn.Parameter(torch.zeros(8, 90))",
    # parts that are added in other ways
    "self.register_parameter('out', nn.Parameter(torch.zeros(7, width)))",
    "for i in range(3):\n    setattr(self, f'layer{i}', nn.Linear(4, 4 + i))",
    "self.out = nn.Identity()\nself.out.head = nn.Linear(8, 3)",
    "self.a = nn.Linear(2, 2)\nself.out = nn.__dict__['Linear'](4, 5)",
    "self.a = nn.Linear(2, 2)\nself.out = {'a': nn.Linear}.get('a')(4, 5)",
    "self.a = nn.Linear(2, 2)\nself.out = nn.Embedding.from_pretrained(torch.zeros(10, 4))",
    "self.out = nn.utils.weight_norm(nn.Linear(8, 8))",
    "layer = nn.TransformerEncoderLayer(16, 2, 32)\nself.a = nn.TransformerEncoder(layer, 3)\n"
    "self.b = nn.TransformerEncoder(layer, 2)\nself.out = layer",
    # classes that extend layers, or hold themselves
    "self.out = Sized(nn.Linear(3, 4), nn.Linear(4, 5))",
    "self.a = nn.Linear(2, 2)\nself.out = Stack([nn.Linear(3, 4)])",
    "self.a = nn.Linear(2, 2)\nself.out = Wide(5)",
    "self.out = Nested(5)",
    # layers that code of the class puts in place of others
    *(f"self.out = Swapped('{how}')" for how in ("plain", "named", "modules", "called")),
    "self.out = Renaming()",
    "self.out = WithFunctions()",
    "self.out = nn.Linear(2, 2)\nself.b = nn.Linear(900, 900)\nsetattr(self, 'b', nn.Linear(3, 3))",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", STATES)
def test_a_count_is_that_of_torch_or_none(tmp_path: Path, body: str) -> None:
    """Weights that are shared, parts that are replaced, parts that are made in unusual ways."""
    pytest.importorskip("torch")
    scope: dict[str, object] = {}
    exec(program(body, BLOCK + CHANGED).replace('.to("cuda")', ""), scope)
    made = sum(one.numel() for one in scope["model"].parameters())  # type: ignore[attr-defined]
    found = read(tmp_path, body, BLOCK + CHANGED)
    assert found.get("model.parameters") in (None, made)
    least = found.get("model.least_parameters", 0)
    assert isinstance(least, int)
    assert least <= made


def test_the_layers_of_a_class_that_extends_sequential_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path, "self.out = Sized(nn.Linear(3, 4), nn.Linear(4, 5))", CHANGED)
    assert found["model.parameters"] == 3 * 4 + 4 + 4 * 5 + 5


@pytest.mark.parametrize(
    "body",
    [
        "self.out = nn.Linear(width, 10)",
        "self.out = nn.Linear(width, 10, bias=False)",
        "self.out = nn.Conv2d(3, width, 3, padding=1)",
        "self.out = nn.Conv2d(width, 2 * width, (3, 5), groups=4, bias=False)",
        "self.out = nn.Conv1d(4, width, kernel_size=7)\nself.up = nn.ConvTranspose2d(width, 8, 2, stride=2)",
        "self.out = nn.Conv3d(1, 8, 3)\nself.norm = nn.BatchNorm3d(8)\nself.act = nn.PReLU()",
        "self.a = nn.BatchNorm2d(width)\nself.b = nn.GroupNorm(4, width)\nself.c = nn.InstanceNorm2d(width)\n"
        "self.d = nn.InstanceNorm2d(width, affine=True)\nself.out = nn.LayerNorm([width, 5])\n"
        "self.e = nn.RMSNorm(width)",
        "self.out = nn.Embedding(100, width)\nself.b = nn.Bilinear(width, 3, 7)",
        "self.out = nn.LSTM(width, 32, num_layers=3, bidirectional=True)\nself.b = nn.GRU(8, width, batch_first=True)\n"
        "self.c = nn.RNN(8, 9, num_layers=2)\nself.d = nn.LSTMCell(8, width)\n"
        "self.e = nn.GRUCell(width, 5, bias=False)",
        "self.out = nn.MultiheadAttention(width, 4)",
        "layer = nn.TransformerEncoderLayer(width, 4, 96, batch_first=True)\n"
        "self.out = nn.TransformerEncoder(layer, num_layers=depth, norm=nn.LayerNorm(width))",
        "self.out = nn.TransformerDecoder(nn.TransformerDecoderLayer(d_model=width, nhead=4), 2)",
        "self.out = nn.Transformer(d_model=width, nhead=4, num_encoder_layers=2, num_decoder_layers=1)",
        "self.out = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1), nn.Softmax(dim=1))",
        "self.out = nn.ModuleList([Block(width) for _ in range(depth)])",
        "self.out = nn.ModuleList([Block(4 * 2**i) for i in range(4)])",
        "self.out = nn.ModuleList()\nfor i in range(3):\n    self.out.append(Block(8 + i))",
        "self.out = nn.ModuleList()\nfor i in range(depth):\n    self.out.append(Block(width))",
        "layers = []\nfor i in range(depth):\n    layers.append(Block(width))\nself.out = nn.ModuleList(layers)",
        "self.first = nn.Linear(2, width)\nself.out = nn.ModuleList()\nfor i in range(depth - 1):\n"
        "    block = Block(width)\n    self.out.append(block)",
        "layers = []\nfor i in range(3):\n    layers += [nn.Linear(8 + i, 8), nn.ReLU()]\n"
        "self.out = nn.Sequential(*layers)",
        "self.out = nn.ModuleDict({'a': Block(4), 'b': Block(width)})",
        "self.add_module('first', Block(3))\nself.out = Block(5)",
        "self.out = nn.Parameter(torch.zeros(1, 7, width))\nself.b = nn.Parameter(torch.randn(5))",
        "self.emb = nn.Embedding(50, width)\nself.out = nn.Linear(width, 50, bias=False)\n"
        "self.out.weight = self.emb.weight",
        "self.a = Block(width)\nself.b = self.a\nself.out = nn.Linear(3, 3)",
        "self.out = nn.Linear(width, 2) if depth > 1 else nn.Linear(width, 900)",
        "self.out = nn.Linear(width, 2)\nif depth > 5:\n    self.more = Block(width)\n"
        "if depth < 5:\n    self.less = Block(3)",
        "self.not_a_part = [nn.Linear(5, 5)]\nself.out = nn.Linear(3, 3)\nself.loss = nn.CrossEntropyLoss()",
        "self.out = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))",
    ],
)
def test_as_many_as_torch_makes(tmp_path: Path, body: str) -> None:
    assert read(tmp_path, body, BLOCK).get("model.parameters") == made_by_torch(body, BLOCK)


EXTENDED = """
class Clip(nn.Hardtanh):
    def __init__(self, inplace=False):
        super().__init__(0, 20, inplace)

class Same(nn.Conv2d):
    def forward(self, x):
        return super().forward(x)

class Wide(nn.Linear):
    def __init__(self, size, out):
        super(Wide, self).__init__(size, 2 * out, bias=False)
        self.scale = nn.Parameter(torch.ones(out))

class Wider(Wide):
    def __init__(self, size):
        super().__init__(size, 2 * size)
        self.norm = nn.LayerNorm(size)
"""


@pytest.mark.parametrize(
    "body",
    [
        "self.a = Clip()\nself.out = nn.Linear(width, 3)",
        "self.a = Same(3, width, 3, groups=3)\nself.out = Same(width, 4, kernel_size=1, bias=False)",
        "self.out = Wide(width, 5)",
        "self.out = nn.Sequential(*[Wider(width) for _ in range(depth)])",
    ],
)
def test_a_layer_of_torch_that_a_class_extends_is_a_part(tmp_path: Path, body: str) -> None:
    assert read(tmp_path, body, EXTENDED).get("model.parameters") == made_by_torch(body, EXTENDED)


def test_a_layer_that_is_made_with_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, "self.a = Same(*sizes)\nself.out = nn.Linear(width, 10)", EXTENDED)
    assert found.get("model.least_parameters") == 24 * 10 + 10


METHOD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.inner = nn.ModuleDict(dict(
            one=nn.Embedding(words, width), rows=nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        ))
        self.head = nn.Linear(width, words, bias=False)
        {shared}

    def make_optimizer(self, lr):
        found = {{n: p for n, p in self.named_parameters() if p.requires_grad}}
        large = [p for n, p in found.items() if p.dim() >= 2]
        small = [p for n, p in found.items() if p.dim() < 2]
        return torch.optim.AdamW([{{"params": large}}, {{"params": small, "weight_decay": 0.0}}], lr=lr)

    def forward(self, x):
        return self.head(self.inner.one(x))

model = Net(100, 8).cuda()
optimizer = model.make_optimizer(1e-3)
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("shared", ["pass", "self.inner.one.weight = self.head.weight"])
def test_a_model_whose_own_method_makes_the_optimizer(tmp_path: Path, shared: str) -> None:
    text = METHOD.format(shared=shared)
    spaces: dict[str, object] = {}
    exec(text[: text.index("model = ")], spaces)
    made = spaces["Net"](100, 8)  # type: ignore[operator]
    counted = sum(one.numel() for one in made.parameters())
    assert values(read_program(text, tmp_path))["model.parameters"] == counted


def test_a_setting_names_a_model_of_the_hub_and_an_own_class_is_trained(tmp_path: Path) -> None:
    body = program("self.out = made_elsewhere(width)").replace(
        "args = ", 'parser.add_argument("--model_name", default="gpt2")\nargs = '
    )
    (tmp_path / "train.py").write_text(body + TRAINING)
    (study,), _ = build(["train.py"], Project(tmp_path, Settings()))
    assert is_unknown(evaluate(study.boxes[0].fields["model.name"].expr))


OWN = (
    "import torch.nn as nn\nclass GPT2LMHeadModel(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.out = nn.Linear(4, 3)\n    @classmethod\n    def from_pretrained(cls, name):\n        return cls()\n"
)
STARTED = (
    "import torch\nfrom transformers import GPT2LMHeadModel\nmodel = GPT2LMHeadModel.from_pretrained('gpt2')\n"
    + TRAINING
)


@pytest.mark.parametrize("path", ["transformers/__init__.py", "transformers.py", "src/transformers/__init__.py"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_package_of_the_project_with_the_name_of_a_library(path: str, copied: bool, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(OWN)
    if copied:  # the whole library lies in the project, changed or not
        home = (tmp_path / path).parent if path.endswith("__init__.py") else tmp_path / "transformers"
        home.mkdir(exist_ok=True)
        (home / "modeling_utils.py").write_text("")
    found = values(read_program(STARTED, tmp_path))
    assert (found["model.name"] == "gpt2") is copied


WRAPPED = """
class Masks(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.head = nn.Linear(64, 64)
parser.add_argument("--masks", action="store_true")
flags = parser.parse_args()
def build():
    model = Net(8, 1)
    if flags.masks:
        model = Masks(model)
    return model
model = build()
optimizer = torch.optim.AdamW([{"params": [p for n, p in model.named_parameters() if "out" in n]}], lr=1e-3)
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""


def test_a_model_that_a_flag_puts_into_another_is_not_taken_for_that(tmp_path: Path) -> None:
    """`if args.masks: model = Masks(model)`: both are named, and the smaller is counted."""
    found = values(read_program(program("self.out = nn.Linear(width, 4)") + WRAPPED, tmp_path))
    name = found["model.name"]
    assert isinstance(name, Unknown)
    assert "Net" in name.words
    assert "Masks" in name.words
    assert found["model.least_parameters"] == 8 * 4 + 4
