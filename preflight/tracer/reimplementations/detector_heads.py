"""Second stages of detectron2's and mmdetection's models, in plain torch: boxes, masks, cascades, and the stage of a C4
body that runs on boxes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 256
SAMPLED, POSITIVE = 512, 128
"""Boxes of an image that the second stage trains on, and at most so many with an object (both libraries' configs)."""
CLASSES = 80
STAGES_OF_CASCADE = 3


class Pooled(torch.autograd.Function):
    """RoIAlign: its output in forward, the levels' gradients in backward (its inputs are not kept)."""

    @staticmethod
    def forward(ctx: Any, side: int, boxes: int, *features: torch.Tensor) -> torch.Tensor:
        ctx.shapes = [x.shape for x in features[:4]]
        ctx.rest = len(features) - 4
        shape = (boxes, features[0].shape[1], side, side)
        out = features[0].new_zeros(shape)
        if len(features) > 1:  # of several levels, each is written into the whole
            level = features[0].new_empty(shape)
            del level
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (None, None, *(gradients[0].new_zeros(shape) for shape in ctx.shapes), *[None] * ctx.rest)


class Masks(nn.Module):
    """Masks of positive boxes: convolutions, twice the side, a mask a class. `truth`: where they are compared with the
    masks of objects in the image's size on the device ("gathered", mmdetection; "each", torchvision)."""

    def __init__(self, inputs: int, count: int, truth: str | None) -> None:
        super().__init__()
        widths = [inputs] + [WIDTH] * count
        self.convs = nn.ModuleList(nn.Conv2d(a, WIDTH, 3, padding=1) for a in widths[:-1])
        self.up = nn.ConvTranspose2d(widths[-1], WIDTH, 2, 2)
        self.mask = nn.Conv2d(WIDTH, CLASSES, 1)
        self.truth = truth

    def forward(self, x: torch.Tensor, image: torch.Tensor, objects: int) -> torch.Tensor:
        for conv in self.convs:
            x = F.relu(conv(x))
        x = self.mask(F.relu(self.up(x)))
        if self.truth is not None:
            cropped(image, objects, self.truth == "gathered")
        logits = x[:, 0]
        return F.binary_cross_entropy_with_logits(logits, torch.empty_like(logits))


def cropped(image: torch.Tensor, objects: int, gathered: bool) -> None:
    """Tensors of resizing true masks to boxes, for one image: the masks of all objects in 32 bits (torchvision,
    models/detection/roi_heads.py, project_masks_on_boxes), or for every positive box a copy of its object's, in 8 bits
    and then in 32 (mmdetection, core/mask/structures.py, BitmapMasks.crop_and_resize)."""
    sides = image.shape[2:]
    whole = torch.empty(objects, *sides, dtype=torch.uint8, device=image.device)
    if gathered:
        whole = whole[torch.zeros(POSITIVE, dtype=torch.int64, device=image.device)]
    whole.to(torch.float32)


class Boxes(nn.Module):
    """Boxes' features through two layers, their scores and corrections."""

    def __init__(self, inputs: int, agnostic: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 1024), nn.Linear(1024, 1024)
        self.predict = Predict(1024, agnostic)

    def forward(self, x: torch.Tensor, batch: int) -> torch.Tensor:
        x = F.relu(self.second(F.relu(self.first(x.flatten(1)))))
        return self.predict(x, batch)


class Predict(nn.Module):
    """Scores and corrections of boxes, and their losses."""

    def __init__(self, inputs: int, agnostic: bool = False) -> None:
        super().__init__()
        self.score, self.delta = nn.Linear(inputs, CLASSES + 1), nn.Linear(inputs, 4 if agnostic else 4 * CLASSES)

    def forward(self, x: torch.Tensor, batch: int) -> torch.Tensor:
        labels = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        loss = F.cross_entropy(self.score(x), labels)
        positive = self.delta(x)[: batch * POSITIVE, :4]
        return loss + F.smooth_l1_loss(positive, torch.empty_like(positive))


class Second(nn.Module):
    """The second stage on maps of one width. `head`: faster, mask or cascade."""

    def __init__(self, head: str, width: int, truth: str | None = None) -> None:
        super().__init__()
        cascade = head == "cascade"  # whose corrections are of no class
        count = STAGES_OF_CASCADE if cascade else 1
        self.boxes = nn.ModuleList(Boxes(width * 49, cascade) for _ in range(count))
        self.masks = Masks(width, 4, truth) if head in ("mask", "cascade") else None

    def forward(self, features: list[torch.Tensor], image: torch.Tensor, objects: int) -> torch.Tensor:
        batch = image.shape[0]
        loss = image.new_zeros(())
        for boxes in self.boxes:
            loss = loss + boxes(Pooled.apply(7, batch * SAMPLED, *features), batch)
        if self.masks is not None:
            loss = loss + self.masks(Pooled.apply(14, batch * POSITIVE, *features), image, objects)
        return loss


class OnBoxes(nn.Module):
    """A C4 body's last stage, which runs on every box (detectron2, Res5ROIHeads). `stage`: of the ResNet."""

    def __init__(self, stage: nn.Module, width: int, masks: bool) -> None:
        super().__init__()
        self.stage = stage
        self.predict = Predict(width)
        self.masks = Masks(width, 0, None) if masks else None

    def forward(self, features: list[torch.Tensor], image: torch.Tensor, objects: int) -> torch.Tensor:
        batch = image.shape[0]
        x = self.stage(Pooled.apply(14, batch * SAMPLED, *features))
        loss: torch.Tensor = self.predict(x.mean(dim=(2, 3)), batch)
        if self.masks is None:
            return loss
        chosen = torch.zeros(batch * POSITIVE, dtype=torch.int64, device=x.device)
        x = x[chosen]
        return loss + self.masks(x, image, objects)
