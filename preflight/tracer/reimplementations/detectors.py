"""Detectors on a ResNet (Faster R-CNN, Mask R-CNN and similar, RetinaNet, RPN), in plain torch.

Our re-implementation of detectron2's and mmdetection's models of the same papers, for interpreters without those
libraries: their layers, with each library's normalisation and frozen stages. The number of boxes depends on the data;
here it is the most that the samplers of the libraries' configurations take.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..building import Output
from .detector_heads import CLASSES, SAMPLED, WIDTH, OnBoxes, Second

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
ANCHORS = {"rpn": 3, "retinanet": 9, "single": 15}
"""Boxes of a position: of a level of a pyramid, of RetinaNet, of the one map of C4 and DC5 bodies."""
SHORTEST, LONGEST, PADDING = 800, 1333, 32
"""Sides that images are resized to and multiples that they are padded to (both libraries' configs): the largest shape
of an epoch decides."""


class FrozenNorm(nn.Module):
    """detectron2's FrozenBatchNorm2d: a product and a sum, of which autograd keeps no input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.empty(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (1, -1, 1, 1)
        if not x.requires_grad:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False)
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(shape) + shift.reshape(shape)


class EvalNorm(nn.BatchNorm2d):
    """Batch normalisation by running statistics while training (mmdetection's norm_eval)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False)


class Block(nn.Module):
    """A residual block; `first`: the stride is in the first 1x1 convolution (Caffe's ResNets); `apart`: dilation."""

    def __init__(
        self, inputs: int, middle: int, outputs: int, stride: int, groups: int, norm: Any, first: bool, apart: int = 1
    ) -> None:
        super().__init__()
        deep = outputs != middle or groups > 1
        shapes = (
            [
                (inputs, middle, 1, stride if first else 1, 1),
                (middle, middle, 3, 1 if first else stride, groups),
                (middle, outputs, 1, 1, 1),
            ]
            if deep
            else [(inputs, middle, 3, stride, 1), (middle, outputs, 3, 1, 1)]
        )
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, k, s, k // 2 * apart, apart if k > 1 else 1, g, bias=False) for i, o, k, s, g in shapes
        )
        self.norms = nn.ModuleList(norm(shape[1]) for shape in shapes)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)) if changes else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if number < len(self.convs) - 1:
                out = F.relu_(out)
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu_(out)


class Backbone(nn.Module):
    """Stages 2 to 5 of a ResNet; the stem and the first stage are frozen. The last stage of a C4 body runs on boxes
    (`last`), that of a DC5 body is dilated instead of strided."""

    def __init__(self, config: dict[str, Any], norm: Any) -> None:
        super().__init__()
        depth, groups, each = config["depth"], config.get("groups", 1), config.get("group_width", 64)
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64))
        inputs, stages = 64, []
        for number, count in enumerate(STAGES[depth]):
            middle = groups * each * 2**number if groups > 1 else 64 * 2**number
            outputs = (256 if depth >= 50 else 64) * 2**number
            blocks = []
            dilated = config.get("body") == "dc5" and number == len(STAGES[depth]) - 1
            for index in range(count):
                stride = 2 if number and not index and not dilated else 1
                blocks.append(
                    Block(
                        inputs,
                        middle,
                        outputs,
                        stride,
                        groups,
                        norm,
                        bool(config.get("stride_first")),
                        2 if dilated else 1,
                    )
                )
                inputs = outputs
            stages.append(nn.Sequential(*blocks))
        self.last = stages.pop() if config.get("body") == "c4" else None
        self.stages = nn.ModuleList(stages)
        for part in (self.stem, self.stages[0]):
            part.requires_grad_(False)
        if not config.get("norm_trains", True):
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.requires_grad_(False)
        self.widths = [(256 if depth >= 50 else 64) * 2**n for n in range(len(stages))]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = F.max_pool2d(F.relu_(self.stem(x)), 3, 2, 1)
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found


class Pyramid(nn.Module):
    """Feature pyramid; with `more`, two further levels by convolutions from P3 on (RetinaNet), else one by pooling."""

    def __init__(self, widths: list[int], more: bool) -> None:
        super().__init__()
        self.more = more
        widths = widths[1:] if more else widths
        self.lateral = nn.ModuleList(nn.Conv2d(w, WIDTH, 1) for w in widths)
        self.out = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in widths)
        self.extra = nn.ModuleList(
            [nn.Conv2d(widths[-1], WIDTH, 3, 2, 1), nn.Conv2d(WIDTH, WIDTH, 3, 2, 1)] if more else []
        )

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        last = features[-1]
        features = features[1:] if self.more else features
        sums = [conv(x) for conv, x in zip(self.lateral, features, strict=True)]
        for n in range(len(sums) - 1, 0, -1):
            sums[n - 1] = sums[n - 1] + F.interpolate(sums[n], size=sums[n - 1].shape[-2:], mode="nearest")
        found = [conv(x) for conv, x in zip(self.out, sums, strict=True)]
        if not self.more:
            return [*found, F.max_pool2d(found[-1], 1, 2)]
        for number, conv in enumerate(self.extra):
            last = conv(F.relu(last) if number else last)
            found.append(last)
        return found


def _flat(x: torch.Tensor, each: int) -> torch.Tensor:
    """(N, A x each, H, W) -> (N, H x W x A, each)."""
    n, _, h, w = x.shape
    return x.reshape(n, -1, each, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, each)


class Proposals(nn.Module):
    """The RPN's head and its losses."""

    def __init__(self, width: int, anchors: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.score = nn.Conv2d(width, anchors, 1)
        self.delta = nn.Conv2d(width, 4 * anchors, 1)

    def forward(self, features: list[torch.Tensor], objects: int) -> torch.Tensor:
        hidden = [F.relu(self.conv(x)) for x in features]
        scores = torch.cat([_flat(self.score(x), 1) for x in hidden], 1)
        deltas = torch.cat([_flat(self.delta(x), 4) for x in hidden], 1)
        anchors = deltas.new_empty(deltas.shape[1], 4)
        assign(anchors, objects)  # one image after the other
        targets = scores.new_empty(scores.shape[:2])
        found = F.binary_cross_entropy_with_logits(scores.squeeze(-1), targets)
        return found + F.smooth_l1_loss(deltas[:, :SAMPLED], torch.empty_like(deltas[:, :SAMPLED]))


def assign(anchors: torch.Tensor, objects: int) -> None:
    """Overlaps of all objects with all anchors, as pairwise_iou and bbox_overlaps write them out."""
    boxes = anchors.new_empty(objects, 4)
    low = torch.max(boxes[:, None, :2], anchors[:, :2])
    high = torch.min(boxes[:, None, 2:], anchors[:, 2:])
    sides = (high - low).clamp_(min=0)
    both = sides[..., 0] * sides[..., 1]
    union = anchors.new_empty(objects)[:, None] + anchors.new_empty(anchors.shape[0]) - both
    overlaps = both / union
    overlaps.max(0)


class Dense(nn.Module):
    """RetinaNet's two towers and the focal loss. `fused`: the loss is one kernel (mmcv)."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.towers = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(4)) for _ in range(2)
        )
        self.score = nn.Conv2d(WIDTH, ANCHORS["retinanet"] * CLASSES, 3, padding=1)
        self.delta = nn.Conv2d(WIDTH, ANCHORS["retinanet"] * 4, 3, padding=1)

    def forward(self, features: list[torch.Tensor], objects: int) -> torch.Tensor:
        scores, deltas = [], []
        for x in features:
            outs = []
            for tower in self.towers:
                y = x
                for conv in tower:
                    y = F.relu(conv(y))
                outs.append(y)
            scores.append(_flat(self.score(outs[0]), CLASSES))
            deltas.append(_flat(self.delta(outs[1]), 4))
        if self.fused:  # losses are in fp32 (dense_heads/anchor_head.py, force_fp32)
            scores, deltas = [x.float() for x in scores], [x.float() for x in deltas]
        delta = torch.cat(deltas, 1)
        anchors = delta.new_empty(delta.shape[1], 4)
        assign(anchors, objects)  # one image after the other
        positive = delta[:, :SAMPLED]
        return self._focal(scores) + F.l1_loss(positive, torch.empty_like(positive))

    def _focal(self, scores: list[torch.Tensor]) -> torch.Tensor:
        if self.fused:  # level by level
            return torch.stack([score.sum() for score in scores]).sum()
        score = torch.cat(scores, 1)
        # Positions that count are gathered, and `gt_labels_target` stays bound through the loss (retinanet.py, losses).
        rows = torch.zeros(score.shape[0] * score.shape[1], dtype=torch.int64, device=score.device)
        target = torch.zeros(rows.shape[0], CLASSES + 1, dtype=torch.int64, device=score.device)[:, :-1]
        score = score.flatten(0, 1)[rows]
        wanted = target.to(score.dtype)
        p = torch.sigmoid(score)
        ce = F.binary_cross_entropy_with_logits(score, wanted, reduction="none")
        p_t = p * wanted + (1 - p) * (1 - wanted)
        return (ce * (1 - p_t) ** 2 * (0.25 * wanted + 0.75 * (1 - wanted))).sum()


class Detecting(nn.Module):
    """A detector's step."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        norm = FrozenNorm if config["norm"] == "frozen" else EvalNorm
        head, self.objects = config["head"], config["objects"]
        single = config.get("body") in ("c4", "dc5")
        self.backbone = Backbone(config, norm)
        self.pyramid = None if single else Pyramid(self.backbone.widths, head == "retinanet")
        self.dense = Dense(config["norm"] != "frozen") if head == "retinanet" else None
        width = self.backbone.widths[-1] if single else WIDTH
        self.proposals = None if self.dense is not None else Proposals(width, ANCHORS["single" if single else "rpn"])
        self.second: nn.Module | None = None
        if self.backbone.last is not None and head != "rpn":
            self.second = OnBoxes(self.backbone.last, 2 * width, head == "mask")
        elif head not in ("rpn", "retinanet"):
            self.second = Second(head, width, config.get("masks"))
        self.backbone.last = None
        self.truths = config.get("masks") == "each"
        self.kept: torch.Tensor | None = None

    def forward(self, pixel_values: torch.Tensor) -> Output:
        if self.truths:  # true masks of every image lie on the device throughout
            shape = (pixel_values.shape[0], self.objects, *pixel_values.shape[2:])
            self.kept = torch.empty(shape, dtype=torch.uint8, device=pixel_values.device)
        features = self.backbone(pixel_values)
        features = features[-1:] if self.pyramid is None else self.pyramid(features)
        if self.dense is not None:
            return Output(self.dense(features, self.objects))
        assert self.proposals is not None
        loss = self.proposals(features, self.objects)
        return Output(loss if self.second is None else loss + self.second(features, pixel_values, self.objects))


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A detector on meta, in training mode."""
    with torch.device("meta"):
        made = Detecting(model["config"])
    return made.train().to(dtypes[setup.get("weights", "fp32")])


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, and the shorter side of images `i` in pixels; both sides are padded."""
    short, long = (-(-side // PADDING) * PADDING for side in (point["i"], round(point["i"] * LONGEST / SHORTEST)))
    return {"pixel_values": torch.zeros(point["b"], 3, short, long, dtype=dtype, device="meta")}
