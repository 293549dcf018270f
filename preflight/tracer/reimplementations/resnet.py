"""Our re-implementation of torchvision's ResNets (He et al. 2015, with the stride in the 3x3 convolution and ReLU in
place), for interpreters without torchvision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

# name: (widened blocks, blocks per stage)
_KINDS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
EXPANSION = 4


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class _Block(nn.Module):
    """A residual block: 3x3, 3x3, or 1x1, 3x3, 1x1 with four times the width at its end."""

    def __init__(self, inputs: int, width: int, stride: int, wide: bool) -> None:
        super().__init__()
        outputs = width * EXPANSION if wide else width
        shapes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if wide
            else [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        )
        self.convs = nn.ModuleList(_conv(*shape) for shape in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(shape[1]) for shape in shapes)
        self.relu = nn.ReLU(inplace=True)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if changes else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if number < len(self.convs) - 1:
                out = self.relu(out)
        out += x if self.shortcut is None else self.shortcut(x)
        return self.relu(out)


def _numbered(found: re.Match[str]) -> str:
    return f".{'conv' if found[1] == 'conv' else 'bn'}{int(found[2]) + 1}."


class ResNet(nn.Module):
    """An image classifier."""

    def __init__(self, wide: bool, stages: tuple[int, ...], num_classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.stages = stages
        blocks: list[nn.Module] = []
        inputs = 64
        for number, count in enumerate(stages):
            width = 64 << number
            for index in range(count):
                blocks.append(_Block(inputs, width, 2 if number and not index else 1, wide))
                inputs = width * EXPANSION if wide else width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, num_classes)

    def parameters_as_published(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters by the names that they have in torchvision."""
        layers = [f"layer{stage + 1}.{at}" for stage, count in enumerate(self.stages) for at in range(count)]
        for name, parameter in self.named_parameters():
            name = re.sub(r"^stem\.(0|1)\.", lambda found: ("conv1.", "bn1.")[int(found[1])], name)
            name = re.sub(r"^blocks\.(\d+)\.", lambda found: f"{layers[int(found[1])]}.", name)
            name = re.sub(r"\.(conv|norm)s\.(\d)\.", _numbered, name)
            yield name.replace(".shortcut.", ".downsample."), parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.pool(self.blocks(self.stem(x)))
        return self.fc(torch.flatten(out, 1))


def make(name: str, **kwargs: Any) -> nn.Module | None:
    """A ResNet by torchvision's name, None for any other."""
    if name not in _KINDS:
        return None
    kwargs.pop("weights", None)
    return ResNet(*_KINDS[name], **kwargs)
