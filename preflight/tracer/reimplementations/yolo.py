"""YOLOv5, YOLOv8 and YOLO11 in plain torch, in one training step: our re-implementation of the models of Ultralytics.

Written from the models' public descriptions (ultralytics/cfg/models: channels, depths, strides, heads). The package is
not needed. `yolo_losses` has the tensors of their losses. How many boxes an image has depends on the data:
`o` of the point says how many the fullest image of the batch has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..building import Output
from . import yolo_losses

SCALES: dict[str, dict[str, tuple[float, float, int]]] = {
    "5": {"n": (0.33, 0.25, 1024), "s": (0.33, 0.50, 1024), "m": (0.67, 0.75, 1024), "l": (1.00, 1.00, 1024),
          "x": (1.33, 1.25, 1024)},
    "8": {"n": (0.33, 0.25, 1024), "s": (0.33, 0.50, 1024), "m": (0.67, 0.75, 768), "l": (1.00, 1.00, 512),
          "x": (1.00, 1.25, 512)},
    "11": {"n": (0.50, 0.25, 1024), "s": (0.50, 0.50, 1024), "m": (0.50, 1.00, 512), "l": (1.00, 1.00, 512),
           "x": (1.00, 1.50, 512)},
}  # fmt: skip
"""Multiples of depth and width, and the most channels before the width's multiple."""
DEPTHS = {"5": (3, 6, 9, 3), "8": (3, 6, 6, 3), "11": (2, 2, 2, 2)}
NECK = {"5": 3, "8": 3, "11": 2}
STRIDE = 32
DISTANCES = 16
"""Bins that each side of a box is a distribution over."""
MASKS = 32
POINTS = 17 * 3
"""Numbers of an image's keypoints (COCO's persons)."""
HEAD = 64


def scale_of(config: dict[str, Any]) -> tuple[float, float, int]:
    """A model's multiples; YOLOv8's classifiers have as many channels as any (cfg/models/v8/yolov8-cls.yaml)."""
    depth, width, most = SCALES[config["version"]][config["scale"]]
    return depth, width, 1024 if config["version"] == "8" and config["task"] == "classify" else most


def _wide(channels: int, scale: tuple[float, float, int]) -> int:
    """Channels at a scale, a multiple of eight."""
    return -(-int(min(channels, scale[2]) * scale[1]) // 8) * 8


def _deep(count: int, scale: tuple[float, float, int]) -> int:
    return max(round(count * scale[0]), 1) if count > 1 else count


class Unit(nn.Module):
    """A convolution without bias, batch normalisation, and SiLU in place."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
        padding: int | None = None,
    ) -> None:
        super().__init__()
        pad = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.active = active

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x))
        return F.silu(x, inplace=True) if self.active else x


class Pair(nn.Module):
    """Two convolutions, and optionally a residual connection."""

    def __init__(self, width: int, shortcut: bool, kernels: tuple[int, int] = (3, 3), inner: float = 1.0) -> None:
        super().__init__()
        middle = int(width * inner)
        self.first, self.second = Unit(width, middle, kernels[0]), Unit(middle, width, kernels[1])
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.second(self.first(x))
        return x + out if self.shortcut else out


class Three(nn.Module):
    """YOLOv5's block: one half goes through pairs of convolutions, the other does not; then both are joined."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool, kernels: tuple[int, int]) -> None:
        super().__init__()
        half = outputs // 2
        self.through, self.beside, self.joined = Unit(inputs, half), Unit(inputs, half), Unit(2 * half, outputs)
        self.pairs = nn.Sequential(*(Pair(half, shortcut, kernels) for _ in range(count)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.joined(torch.cat((self.pairs(self.through(x)), self.beside(x)), 1))


class Split(nn.Module):
    """The block of YOLOv8 and YOLO11: it joins the outputs of all inner blocks."""

    def __init__(self, inputs: int, outputs: int, count: int, half: int, inner: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.joined = Unit(inputs, 2 * half), Unit((2 + count) * half, outputs)
        self.inner = nn.ModuleList(inner(half) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.inner:
            parts.append(block(parts[-1]))
        return self.joined(torch.cat(parts, 1))


class Pooling(nn.Module):
    """Three poolings one after the other, all of them joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.joined = Unit(width, width // 2), Unit(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.joined(torch.cat(parts, 1))


class Attending(nn.Module):
    """YOLO11's attention over all positions, written out, and its two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // HEAD, 1)
        self.value = width // self.heads
        self.key = self.value // 2
        self.all = Unit(width, width + 2 * self.key * self.heads, active=False)
        self.out, self.place = Unit(width, width, active=False), Unit(width, width, 3, groups=width, active=False)
        self.up, self.down = Unit(width, 2 * width), Unit(2 * width, width, active=False)

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.all(x).view(b, self.heads, -1, h * w).split([self.key, self.key, self.value], 2)
        weights = ((q.transpose(-2, -1) @ k) * self.key**-0.5).softmax(-1)
        x = (v @ weights.transpose(-2, -1)).view(b, c, h, w) + self.place(v.reshape(b, c, h, w))
        return self.out(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._attend(x)
        return x + self.down(self.up(x))


class Half(nn.Module):
    """Attention blocks on one half of the channels."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.half = width // 2
        self.first, self.joined = Unit(width, width), Unit(width, width)
        self.inner = nn.Sequential(*(Attending(self.half) for _ in range(count)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.first(x).split((self.half, self.half), 1)
        return self.joined(torch.cat((a, self.inner(b)), 1))


def block(
    config: dict[str, Any],
    inputs: int,
    outputs: int,
    count: int,
    backbone: bool,
    deep: bool = False,
    share: float = 0.5,
) -> nn.Module:
    """A stage's block. `deep`, `share`: of YOLO11, whether inner blocks are blocks of three, and their width."""
    if config["version"] == "5":
        return Three(inputs, outputs, count, backbone, (1, 3))
    half = int(outputs * share)
    if config["version"] == "8":
        return Split(inputs, outputs, count, half, lambda c: Pair(c, backbone))
    if deep or config["scale"] in "mlx":
        return Split(inputs, outputs, count, half, lambda c: Three(c, c, 2, True, (3, 3)))
    return Split(inputs, outputs, count, half, lambda c: Pair(c, True, inner=0.5))


class Backbone(nn.Module):
    """From an image to maps of strides 8, 16 and 32."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        version, scale = config["version"], scale_of(config)
        widths = [_wide(c, scale) for c in (64, 128, 256, 512, 1024)]
        five, eleven = version == "5", version == "11"
        self.stem = Unit(3, widths[0], 6, 2, padding=2) if five else Unit(3, widths[0], 3, 2)
        outs = [widths[1], *widths[2:]]
        if eleven:  # the first two stages come out twice as wide
            outs = [_wide(256, scale), _wide(512, scale), *widths[3:]]
        alone = config["task"] == "classify"
        stages, before = [], widths[0]
        for n, count in enumerate(DEPTHS[version]):
            share = 0.25 if eleven and n < 2 else 0.5
            stages.append(
                nn.Sequential(
                    Unit(before, widths[n + 1], 3, 2),
                    block(config, widths[n + 1], outs[n], _deep(count, scale), True, n >= 2, share),
                )
            )
            before = outs[n]
        self.stages = nn.ModuleList(stages)
        self.pool = None if alone else Pooling(before)
        self.attend = Half(before, _deep(2, scale)) if eleven else None
        self.widths = outs[1:]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        x = x if self.pool is None else self.pool(x)
        return [*found[1:3], x if self.attend is None else self.attend(x)]


class Neck(nn.Module):
    """Down the pyramid and up again."""

    def __init__(self, config: dict[str, Any], widths: Sequence[int]) -> None:
        super().__init__()
        version, scale = config["version"], scale_of(config)
        three, four, five = (_wide(c, scale) for c in (256, 512, 1024))
        count = _deep(NECK[version], scale)
        old = version == "5"
        self.narrow = nn.ModuleList([Unit(widths[2], four), Unit(four, three)] if old else [])
        top, middle = (four, three) if old else (widths[2], four)
        self.down4 = block(config, top + widths[1], four, count, False)
        self.down3 = block(config, middle + widths[0], three, count, False)
        self.half3, self.half4 = Unit(three, three, 3, 2), Unit(four, four, 3, 2)
        self.up4 = block(config, three + middle, four, count, False)
        self.up5 = block(config, four + top, five, count, False, deep=True)
        self.widths = [three, four, five]

    def forward(self, maps: list[torch.Tensor]) -> list[torch.Tensor]:
        three, four, five = maps
        top = self.narrow[0](five) if self.narrow else five
        middle = self.down4(torch.cat((_double(top), four), 1))
        middle = self.narrow[1](middle) if self.narrow else middle
        low = self.down3(torch.cat((_double(middle), three), 1))
        mid = self.up4(torch.cat((self.half3(low), middle), 1))
        return [low, mid, self.up5(torch.cat((self.half4(mid), top), 1))]


def _double(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


class Detect(nn.Module):
    """The head of the package: distributions of distances, classes, and the outputs of the task."""

    def __init__(self, config: dict[str, Any], widths: Sequence[int]) -> None:
        super().__init__()
        first, classes = widths[0], config["vocab_size"]
        boxes, scores = max(16, first // 4, 4 * DISTANCES), config["classifier"]
        light = config["version"] == "11"  # depthwise
        self.boxes = nn.ModuleList(_tower(w, boxes, 4 * DISTANCES) for w in widths)
        self.scores = nn.ModuleList((_light if light else _tower)(w, scores, classes) for w in widths)
        self.bins = nn.Conv2d(DISTANCES, 1, 1, bias=False).requires_grad_(False)
        self.task, more = config["task"], {"segment": MASKS, "pose": POINTS}.get(config["task"], 0)
        self.more = nn.ModuleList(_tower(w, max(first // 4, more), more) for w in (widths if more else ()))
        self.prototypes = Prototypes(first) if self.task == "segment" else None

    def forward(self, maps: list[torch.Tensor], objects: int) -> Output:
        b = maps[0].shape[0]
        prototypes = None if self.prototypes is None else self.prototypes(maps[0])
        more = [tower(x).view(b, tower[-1].out_channels, -1) for tower, x in zip(self.more, maps, strict=False)]
        extra = torch.cat(more, -1) if more else None
        levels = [torch.cat((one(x), two(x)), 1) for one, two, x in zip(self.boxes, self.scores, maps, strict=True)]
        if not self.training:
            return yolo_losses.decoded(levels, DISTANCES, self.bins, extra)
        loss = yolo_losses.detection(levels, 4 * DISTANCES, objects)
        if prototypes is not None and extra is not None:
            loss = loss + yolo_losses.masks(extra, prototypes, objects)
        elif extra is not None:
            loss = loss + yolo_losses.keypoints(extra, objects)
        return Output(loss)


def _tower(inputs: int, middle: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(Unit(inputs, middle, 3), Unit(middle, middle, 3), nn.Conv2d(middle, outputs, 1))


def _light(inputs: int, middle: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(Unit(inputs, inputs, 3, groups=inputs), Unit(inputs, middle)),
        nn.Sequential(Unit(middle, middle, 3, groups=middle), Unit(middle, middle)),
        nn.Conv2d(middle, outputs, 1),
    )


class Prototypes(nn.Module):
    """Masks that each box's mask is a sum of, at a quarter of the image's side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.second, self.last = Unit(inputs, inputs, 3), Unit(inputs, inputs, 3), Unit(inputs, MASKS)
        self.up = nn.ConvTranspose2d(inputs, inputs, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.up(self.first(x))))


class Anchored(nn.Module):
    """The head of the repository ultralytics/yolov5: three boxes of fixed shapes at each position."""

    def __init__(self, config: dict[str, Any], widths: Sequence[int]) -> None:
        super().__init__()
        self.each = 5 + config["vocab_size"]
        self.convs = nn.ModuleList(nn.Conv2d(w, 3 * self.each, 1) for w in widths)

    def forward(self, maps: list[torch.Tensor], objects: int) -> Output:
        levels: list[torch.Tensor] = []
        for conv, x in zip(self.convs, maps, strict=True):
            y = conv(x)
            b, _, h, w = y.shape
            levels.append(y.view(b, 3, self.each, h, w).permute(0, 1, 3, 4, 2).contiguous())
        if not self.training:
            return yolo_losses.anchored_decoded(levels)
        self.kept = levels  # train.py's name for them
        return Output(yolo_losses.anchored(levels, objects))


class Classify(nn.Module):
    """The head of classifiers, and its loss."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.conv, self.linear = Unit(inputs, 1280), nn.Linear(1280, classes)

    def forward(self, x: torch.Tensor) -> Output:
        scores = self.linear(F.adaptive_avg_pool2d(self.conv(x), 1).flatten(1))
        labels = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        if not self.training:
            return Output(scores.sum(), scores=scores.softmax(1))
        return Output(F.cross_entropy(scores, labels))


class Network(nn.Module):
    """A model's step."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.backbone = Backbone(config)
        widths = self.backbone.widths
        self.classify = Classify(widths[-1], config["vocab_size"]) if config["task"] == "classify" else None
        self.neck = Neck(config, widths) if self.classify is None else None
        head = Anchored if config.get("anchors") else Detect
        self.head = head(config, self.neck.widths) if self.neck is not None else None

    def forward(self, pixel_values: torch.Tensor, objects: int) -> Output:
        maps = self.backbone(pixel_values)
        if self.classify is not None:
            found: Output = self.classify(maps[-1])
            return found
        assert self.neck is not None
        assert self.head is not None
        made: Output = self.head(self.neck(maps), objects)
        return made


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A model on meta, in training mode. `config`: version ("5", "8", "11"), scale, task, vocab_size (classes),
    classifier (channels of the towers of scores), anchors (the head of the repository yolov5)."""
    with torch.device("meta"):
        made = Network(model["config"])
    return made.train().to(dtypes[setup.get("weights", "fp32")])


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, the side `k` in steps of 32 pixels, boxes of the fullest image `o`."""
    side = STRIDE * point["k"]
    return {"pixel_values": torch.zeros(point["b"], 3, side, side, dtype=dtype, device="meta"), "objects": point["o"]}
