"""Parts of a model that are frozen: by paths as programs write them, and by patterns of parameters' names."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from preflight.tracer.building import CannotBuild, freeze  # noqa: E402
from preflight.tracer.reimplementations import resnet  # noqa: E402


class Bert(torch.nn.Module):
    """A model as transformers has them: `base_model` is a property, and its layers are a list."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = torch.nn.Module()
        self.bert.layer = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(12))
        self.classifier = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))

    @property
    def base_model(self) -> torch.nn.Module:
        return self.bert


LAYERS = {f"bert.layer.{number}.weight" for number in range(12)}
LAST = {"classifier.1.weight", "classifier.1.bias"}
HEAD = {"classifier.0.weight", "classifier.0.bias", *LAST}


@pytest.mark.parametrize(
    ("parts", "trained"),
    [
        ([], LAYERS | HEAD),
        (["bert"], HEAD),
        (["base_model"], HEAD),
        (["bert.layer.1"], (LAYERS | HEAD) - {"bert.layer.1.weight"}),
        (["*", "!classifier"], HEAD),
        (["*", "!classifier.1"], LAST),
        (["*", "!classifier.-1"], LAST),
        (["*", "!*bias"], {name for name in HEAD if name.endswith("bias")}),
        (["*", "!bert", "bert.layer"], set()),
        (["classifier.0.weight"], (LAYERS | HEAD) - {"classifier.0.weight"}),
    ],
)
def test_what_is_trained(parts: list[str], trained: set[str]) -> None:
    model = Bert()
    freeze(model, parts)
    assert {name for name, one in model.named_parameters() if one.requires_grad} == trained


@pytest.mark.parametrize("part", ["encoder", "!encoder", "*encoder*", "bert.layer.12", "base", "classifier.-3"])
def test_a_part_that_the_model_does_not_have_is_refused(part: str) -> None:
    with pytest.raises(CannotBuild, match="Bert has no parameters of"):
        freeze(Bert(), [part])


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_reimplementation_has_the_published_names(name: str) -> None:
    made = resnet.make(name)
    found = [name for name, _ in made.parameters_as_published()]
    sizes = {name: tuple(one.shape) for name, one in made.parameters_as_published()}
    assert len(sizes) == len(found) == len(list(made.parameters()))
    last = 3 if name == "resnet50" else 2
    assert sizes["conv1.weight"] == (64, 3, 7, 7)
    assert sizes[f"layer4.{last - 1 if name == 'resnet18' else 2}.bn{last}.bias"] == (512 * (last == 2) or 2048,)
    assert sizes["layer2.0.downsample.0.weight"][2:] == (1, 1)
    assert {"bn1.weight", "layer3.1.conv2.weight", "layer2.0.downsample.1.weight", "fc.bias"} <= sizes.keys()
    freeze(made, ["layer1", "*bn*"])
    assert not made.blocks[0].convs[0].weight.requires_grad
    assert not made.stem[1].weight.requires_grad
    assert made.fc.weight.requires_grad
    try:
        import torchvision
    except ImportError:
        return
    published = {name: tuple(one.shape) for name, one in getattr(torchvision.models, name)().named_parameters()}
    assert sizes == published
