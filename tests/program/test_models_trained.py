"""Which of the models that a program makes it trains: a part, a copy and one of several are not the model."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import is_unknown, read_program, values

from preflight.vocabulary.values import Value

HEAD = """
import torch, torchvision, transformers
from torch.utils.data import DataLoader
"""
LOOP = """
opt = torch.optim.Adam(model.parameters())
for batch in DataLoader(data, 4, shuffle=True):
    model(batch).sum().backward()
"""


def told(body: str, tmp_path: Path, loop: str = LOOP) -> dict[str, Value]:
    return values(read_program(HEAD + dedent(body) + loop, tmp_path))


NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {}
model = Net()
"""
PARTS = {
    "an encoder and a decoder": (
        'self.e = transformers.AutoModel.from_pretrained("bert-base-uncased")\n'
        "        self.d = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(768, 8), 12)"
    ),
    "a backbone and convolutions": (
        "self.e = torchvision.models.resnet50()\n        self.d = torch.nn.Sequential(torch.nn.Conv2d(9, 9, 3))"
    ),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_part_of_an_own_class_is_not_the_model(parts: str, tmp_path: Path) -> None:
    found = told(NET.format(parts), tmp_path)
    assert is_unknown(found["model.name"])
    assert "model.target" not in found


BRANCHES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--size", default="large")
args = parser.parse_args()
def backbone(size):
    {choice}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = backbone(args.size)
model = Net()
"""
EITHER = """if size == "small":
        return torchvision.models.resnet18()
    elif size == "large":
        return torchvision.models.resnet50()"""


def test_models_in_branches_of_a_condition_are_one_part(tmp_path: Path) -> None:
    found = told(BRANCHES.format(choice=EITHER), tmp_path)
    assert found["model.target"] == "torchvision:resnet50"


def test_models_beside_each_other_are_several_parts(tmp_path: Path) -> None:
    both = "return torch.nn.ModuleList([torchvision.models.resnet18(), torchvision.models.resnet50()])"
    found = told(BRANCHES.format(choice=both), tmp_path)
    assert is_unknown(found["model.name"])


def test_what_stands_beside_the_trained_model_is_not_it(tmp_path: Path) -> None:
    body = NET.format("self.c = torch.nn.Conv2d(3, 3, 3)") + "features = torchvision.models.vgg16().features.eval()\n"
    found = told(body, tmp_path)
    assert not {"model.target", "task"} & set(found)
    assert is_unknown(found["model.name"])


SEVERAL = {
    "two encoders": NET.format(
        'self.a = transformers.AutoModel.from_pretrained("bert-base-uncased")\n'
        '        self.b = transformers.AutoModel.from_pretrained("google/vit-base-patch16-224")'
    ),
    "two models": (
        "first = torchvision.models.resnet18()\nsecond = torchvision.models.resnet50()\nmodel = both(first, second)\n"
    ),
    "one of a list": (
        'models = [transformers.AutoModel.from_pretrained("gpt2"), transformers.AutoModel.from_pretrained("gpt2-xl")]\n'
        "model = models[choose()]\n"
    ),
    "one of two branches": (
        'if choose():\n    model = transformers.AutoModel.from_pretrained("gpt2")\n'
        'else:\n    model = transformers.AutoModel.from_pretrained("gpt2-xl")\n'
    ),
}


@pytest.mark.parametrize("body", SEVERAL.values(), ids=SEVERAL)
def test_one_of_several_models_is_unknown(body: str, tmp_path: Path) -> None:
    found = told(body, tmp_path)
    assert is_unknown(found["model.name"])
    assert "model.target" not in found


def test_a_model_of_another_framework_is_none(tmp_path: Path) -> None:
    for name in ("FlaxGPT2LMHeadModel", "TFGPT2LMHeadModel"):
        assert "model.name" not in told(f'model = transformers.{name}.from_pretrained("gpt2")\n', tmp_path)


READ = {
    "with a small head": (
        NET.format(
            'self.e = transformers.AutoModel.from_pretrained("bert-base-uncased")\n'
            "        self.head = torch.nn.Linear(768, 2)"
        ),
        "bert-base-uncased",
    ),
    "the trained one of two": (
        'other = transformers.AutoModel.from_pretrained("gpt2-xl")\n'
        'model = transformers.AutoModel.from_pretrained("gpt2")\n',
        "gpt2",
    ),
    "wrapped": (
        "from peft import get_peft_model, LoraConfig\n"
        'base = transformers.AutoModel.from_pretrained("gpt2")\nmodel = get_peft_model(base.cuda(), LoraConfig())\n',
        "gpt2",
    ),
    "the same twice": (
        'base = transformers.AutoModel.from_pretrained("gpt2")\n'
        'model = build(transformers.AutoModel.from_pretrained("gpt2"))\n',
        "gpt2",
    ),
    "unless a file is not there": (
        'if not there():\n    raise ValueError\nmodel = transformers.AutoModel.from_pretrained("gpt2")\n',
        "gpt2",
    ),
}


@pytest.mark.parametrize(("body", "expected"), READ.values(), ids=READ)
def test_the_model(body: str, expected: str, tmp_path: Path) -> None:
    assert told(body, tmp_path)["model.name"] == expected


# --- weights are loaded in a type -------------------------------------------------------------------------------------

LOAD = 'model = transformers.AutoModel.from_pretrained("gpt2"{})\n'
TRAIN = "transformers.Trainer(model, transformers.TrainingArguments('o', per_device_train_batch_size=1)).train()\n"


@pytest.mark.parametrize("given", [', dtype="auto"', ', torch_dtype="auto"'])
def test_a_type_of_the_checkpoint_is_unknown(given: str, tmp_path: Path) -> None:
    found = told(LOAD.format(given), tmp_path, TRAIN)
    assert is_unknown(found["train.weights_dtype"])
    assert is_unknown(found["train.precision"])


@pytest.mark.parametrize(("version", "known"), [("4.57.1", True), ("5.0.0", False)])
def test_the_release_decides_how_weights_are_loaded(version: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"transformers=={version}\n")
    found = told(LOAD.format(""), tmp_path, TRAIN)
    assert (found["train.precision"] == "fp32") is known
    stated = told(LOAD.format(", dtype=torch.float32"), tmp_path, TRAIN)
    assert (stated["train.weights_dtype"], stated["train.precision"]) == ("fp32", "fp32")


PIPELINE = """
from diffusers import AutoencoderKL, UNet2DConditionModel
NAME = "CompVis/stable-diffusion-v1-4"
vae = AutoencoderKL.from_pretrained(NAME, subfolder="vae")
unet = UNet2DConditionModel.from_pretrained(NAME, subfolder="unet")
optimizer = torch.optim.AdamW({trained}.parameters())
for batch in DataLoader(rows, 4, shuffle=True):
    {trained}(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("trained", ["unet", "vae"])
def test_the_name_of_a_pipeline_stands_for_its_denoiser_alone(trained: str, tmp_path: Path) -> None:
    name = values(read_program(HEAD + PIPELINE.format(trained=trained), tmp_path))["model.name"]
    assert is_unknown(name) if trained == "vae" else name == "CompVis/stable-diffusion-v1-4"


@pytest.mark.parametrize("probe", ["Linear(llm.config.hidden_size, 2)", "Sequential(torch.nn.Linear(64, 2))"])
def test_a_layer_that_is_trained_on_the_outputs_of_a_model(probe: str, tmp_path: Path) -> None:
    """The optimizer has the parameters of the layer alone: the model beside it is not what is trained."""
    body = f"""
    llm = transformers.AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    probe = torch.nn.{probe}
    """
    loop = LOOP.replace("model", "probe").replace("probe(batch)", "probe(llm(batch).hidden_states[-1].detach())")
    name = told(body, tmp_path, loop).get("model.name")
    assert name is None or is_unknown(name)


def test_a_container_of_torch_may_hold_the_model(tmp_path: Path) -> None:
    body = """
    llm = transformers.AutoModel.from_pretrained("gpt2").cuda()
    model = torch.nn.Sequential(llm, torch.nn.Linear(64, 2))
    """
    assert told(body, tmp_path)["model.name"] == "gpt2"


def test_a_setting_s_name_does_not_make_a_model_the_trained_one(tmp_path: Path) -> None:
    """`--base_model` names the model beside the layer: its name must not suggest what is trained."""
    body = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--base_model", default="gpt2")
    llm = transformers.AutoModelForCausalLM.from_pretrained(parser.parse_args().base_model).cuda()
    model = torch.nn.Linear(64, 2)
    """
    found = told(body, tmp_path)
    assert "model.name" not in found
    assert found["model.parameters"] == 64 * 2 + 2


BESIDE = """
class Generator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.{}
class Margin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(10, 1000))
model = torchvision.models.resnet18()
other = {}()
"""
BOTH = """
opt = torch.optim.Adam(list(model.parameters()) + list(other.parameters()))
for batch in DataLoader(data, 4, shuffle=True):
    model(batch).sum().backward()
"""


@pytest.mark.parametrize(
    ("layer", "made", "known"),
    [
        ("ConvTranspose2d(100, 64, 4)", "Generator", False),
        ("Linear(100, 64)", "Generator", True),
        ("ReLU()", "Margin", True),
    ],
)
def test_a_large_module_that_is_trained_beside_a_librarys_model(
    layer: str, made: str, known: bool, tmp_path: Path
) -> None:
    found = told(BESIDE.format(layer, made), tmp_path, BOTH)
    assert is_unknown(found.get("model.name")) is not known


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("min_size=600", "model.kwargs.min_size"),
        ("weights=None", None),
        ('weights="DEFAULT"', None),
        ("trainable_backbone_layers=5", "model.kwargs.trainable_backbone_layers"),
    ],
)
def test_arguments_of_a_constructor_that_change_the_model(given: str, field: str | None, tmp_path: Path) -> None:
    body = f"model = torchvision.models.detection.maskrcnn_resnet50_fpn({given})"
    found = [name for name in told(body, tmp_path) if name.startswith("model.kwargs.")]
    assert found == ([field] if field else [])


REGISTERED = """
import argparse, torch, timm
from torch.utils.data import DataLoader
import nets
args = argparse.ArgumentParser()
args.add_argument("--model", default="{name}")
args = args.parse_args()
model = timm.create_model(args.model, pretrained=False, num_classes=100, drop_block_rate=None)
"""
NETS = """
import torch
from timm.models.registry import register_model
from timm.models.vision_transformer import VisionTransformer
class Mine(torch.nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.head = torch.nn.Linear(width, num_classes)
@register_model
def vit_base_patch16_224(pretrained=False, **kwargs):
    return Mine(16, **kwargs)
@register_model
def vit_small_patch16_224(pretrained=False, **kwargs):
    return VisionTransformer(embed_dim=384, depth=12, **kwargs)
@register_model
def vit_tiny_patch16_224(pretrained=False, **kwargs):
    for _ in range(300):
        for _ in range(300):
            kwargs["depth"] = sum([1, kwargs.get("depth", 0)])
    return Mine(16, **kwargs)
"""


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("vit_base_patch16_224", None),
        ("vit_small_patch16_224", "timm:vit_small_patch16_224"),
        ("resnet18", "timm:resnet18"),
    ],
)
def test_a_model_that_the_program_registers_under_the_name_of_one_of_timm(
    name: str, target: str | None, tmp_path: Path
) -> None:
    found = values(read_program(REGISTERED.format(name=name) + LOOP, tmp_path, nets__py=NETS))
    assert found.get("model.target") == target
    assert (found.get("model.parameters") == 16 * 100 + 100) is (target is None)


def test_a_registered_model_that_computes_much_is_unknown_and_the_rest_is_read(tmp_path: Path) -> None:
    found = values(read_program(REGISTERED.format(name="vit_tiny_patch16_224") + LOOP, tmp_path, nets__py=NETS))
    assert "model.target" not in found
    assert is_unknown(found["model.name"])
    assert found["train.batch_size"] == 4


def test_what_looks_into_a_model_makes_none(tmp_path: Path) -> None:
    """A perceptual loss cuts a model at its layers: the function that does it is not the model."""
    text = """
import torch
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor

made = models.resnet50()
names = models.list_models()
weights = models.get_model_weights("resnet50")
features = create_feature_extractor(models.vgg19(), ["features.35"])
optimizer = torch.optim.Adam(made.parameters())
for x in data:
    made(x).sum().backward()
    optimizer.step()
"""
    assert values(read_program(text, tmp_path))["model.target"] == "torchvision:resnet50"
