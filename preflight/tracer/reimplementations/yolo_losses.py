"""Losses of the models in `yolo`, in plain torch: the order and shapes of the storages, not their values. Written after
ultralytics 8.0 to 8.3 (utils/loss.py, utils/tal.py) and ultralytics/yolov5 (utils/loss.py).

The assigner compares every box with every position, padded to the boxes of the fullest image. How many positions lie in
a box depends on the data as well; see COVERED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..building import Output

CHOSEN = 10
"""Positions that a box is assigned to (tal_topk)."""
COVERED = 21
"""One position in so many lies in a box. At strides 8, 16 and 32 that is as many as the last map has. COCO: 41 % of
objects are below 32^2 pixels, 34 % to 96^2, 24 % above (cocodataset.org, "Detection evaluation"); with the geometric
means of these ranges in an image of 640 x 480 an object covers 4.6 %."""
MATCHES = 9
"""Positions that yolov5 matches to a box: three shapes, the cell and two neighbours, at one level (build_targets)."""


def _empty(like: torch.Tensor, *shape: int, dtype: torch.dtype | None = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _indices(like: torch.Tensor, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=like.device)


def _grid(levels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Centres of all positions and their strides."""
    count = sum(x.shape[2] * x.shape[3] for x in levels)
    dtype = levels[0].dtype
    return _empty(levels[0], count, 2, dtype=dtype), _empty(levels[0], count, 1, dtype=dtype)


def _boxes(centres: torch.Tensor, distances: torch.Tensor, bins: int) -> torch.Tensor:
    """Corners of boxes from distributions of their distances."""
    b, count, _ = distances.shape
    spread = distances.view(b, count, 4, bins).softmax(3)
    reach = spread.matmul(torch.zeros(bins, dtype=distances.dtype, device=distances.device))
    near, far = reach.chunk(2, -1)
    return torch.cat((centres - near, centres + far), -1)


def _iou(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Complete IoU of pairs of boxes, each quantity written out as bbox_iou does."""
    x1, y1, x2, y2 = one.chunk(4, -1)
    u1, v1, u2, v2 = other.chunk(4, -1)
    w1, h1, w2, h2 = x2 - x1, y2 - y1 + 1, u2 - u1, v2 - v1 + 1
    both = (x2.minimum(u2) - x1.maximum(u1)).clamp_(0) * (y2.minimum(v2) - y1.maximum(v1)).clamp_(0)
    union = w1 * h1 + w2 * h2 - both + 1
    iou = both / union
    across, down = x2.maximum(u2) - x1.minimum(u1), y2.maximum(v2) - y1.minimum(v1)
    diagonal = across.pow(2) + down.pow(2) + 1
    apart = ((u1 + u2 - x1 - x2).pow(2) + (v1 + v2 - y1 - y2).pow(2)) / 4
    shape = 0.4 * ((w2 / h2).atan() - (w1 / h1).atan()).pow(2)
    with torch.no_grad():
        alpha = shape / (shape - iou + 1)
    return iou - (apart / diagonal + shape * alpha)


def _cross_entropy(scores: torch.Tensor, wanted: torch.Tensor, reduction: str = "none") -> torch.Tensor:
    """binary_cross_entropy_with_logits; its kernel makes a log of the sigmoid first (Loss.cpp)."""
    found = F.binary_cross_entropy_with_logits(scores, wanted, reduction=reduction)
    scratch = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    del scratch
    return found


@torch.no_grad()  # type: ignore[untyped-decorator]
def _assign(scores: torch.Tensor, boxes: torch.Tensor, centres: torch.Tensor, objects: int) -> Any:
    """The task-aligned assigner: (boxes that are wanted, scores that are wanted)."""
    b, count, classes = scores.shape
    labels, wanted = _empty(boxes, b, objects, 1), _empty(boxes, b, objects, 4)
    there = _empty(boxes, b, objects, 1)
    inside = _inside(centres, wanted, there)
    metric, overlaps = _metrics(scores, boxes, wanted, inside * there)
    chosen = _chosen(metric)
    positive = chosen * inside * there
    del chosen, inside
    per_position = positive.sum(-2)
    several = (per_position.unsqueeze(1) > 1).expand(-1, objects, -1)
    best = overlaps.argmax(1)
    highest = torch.zeros(positive.shape, dtype=positive.dtype, device=positive.device)
    highest.scatter_(1, best.unsqueeze(1), 1)
    positive = torch.where(several, highest, positive)
    per_position = positive.sum(-2)
    del several, best, highest
    mine = positive.argmax(-2)
    mine = mine + _empty(boxes, b, 1, dtype=torch.int64)
    flat = labels.long().flatten()[mine]
    target_boxes = wanted.view(-1, 4)[mine]
    target = torch.zeros((b, count, classes), dtype=torch.int64, device=boxes.device)
    target.scatter_(2, flat.unsqueeze(-1), 1)
    mask = per_position[:, :, None].repeat(1, 1, classes)
    target = torch.where(mask > 0, target, 0)
    del mask
    metric *= positive
    at_best = metric.amax(-1, keepdim=True)
    overlap = (overlaps * positive).amax(-1, keepdim=True)
    norm = (metric * overlap / (at_best + 1)).amax(-2).unsqueeze(-1)
    return target_boxes, target * norm


def _inside(centres: torch.Tensor, wanted: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    b, objects, _ = wanted.shape
    low, high = wanted.view(-1, 1, 4).chunk(2, 2)
    apart = torch.cat((centres[None] - low, high - centres[None]), 2).view(b, objects, centres.shape[0], -1)
    return apart.amin(3).gt_(0)


def _metrics(scores: torch.Tensor, boxes: torch.Tensor, wanted: torch.Tensor, mask: torch.Tensor) -> Any:
    """How well each position predicts each box, and their overlap."""
    b, count, _ = boxes.shape
    objects = wanted.shape[1]
    mask = mask.bool()
    overlaps = torch.zeros((b, objects, count), dtype=boxes.dtype, device=boxes.device)
    found = torch.zeros((b, objects, count), dtype=scores.dtype, device=boxes.device)
    candidates = b * objects * count // COVERED
    where = _empty(boxes, candidates, 3, dtype=torch.int64)  # of a mask: nonzero
    index = _indices(boxes, candidates)
    dense = scores[_indices(boxes, b * objects), :, _indices(boxes, b * objects)]
    found.view(-1)[index] = dense.view(-1)[index]
    del dense, where
    where = _empty(boxes, candidates, 3, dtype=torch.int64)  # once more for each of the pair
    mine, theirs = _empty(boxes, candidates, 4), _empty(boxes, candidates, 4)
    overlaps.view(-1)[index] = _iou(theirs, mine).squeeze(-1).clamp_(0)
    del where
    return found.pow(0.5) * overlaps.pow(6), overlaps


def _chosen(metric: torch.Tensor) -> torch.Tensor:
    _, best = torch.topk(metric, CHOSEN, -1)
    counted = torch.zeros(metric.shape, dtype=torch.int8, device=metric.device)
    one = torch.ones_like(best[:, :, :1], dtype=torch.int8)
    counted.scatter_add_(-1, best[:, :, :1], one)
    again = counted > 1
    counted.masked_fill_(again, 0)
    return counted.to(metric.dtype)


def detection(levels: Sequence[torch.Tensor], channels: int, objects: int) -> torch.Tensor:
    """The loss of boxes, classes and distances. `channels`: those of distances, before the classes'."""
    b = levels[0].shape[0]
    whole = torch.cat([x.view(b, x.shape[1], -1) for x in levels], 2)
    distances, scores = whole.split((channels, whole.shape[1] - channels), 1)
    scores, distances = scores.permute(0, 2, 1).contiguous(), distances.permute(0, 2, 1).contiguous()
    del whole
    centres, strides = _grid(levels)
    boxes = _boxes(centres, distances, channels // 4)
    target_boxes, target = _assign(
        scores.detach().sigmoid(), (boxes.detach() * strides).float(), centres * strides, objects
    )
    total = target.sum()
    loss = _cross_entropy(scores, target.to(scores.dtype)).sum() / total
    target_boxes /= strides
    kept = b * objects * CHOSEN
    index = _indices(scores, kept)
    weight = target.sum(-1).view(-1)[index].unsqueeze(-1)
    loss = loss + ((1 - _iou(boxes.view(-1, 4)[index], target_boxes.view(-1, 4)[index])) * weight).sum() / total
    sides = torch.cat((centres - target_boxes[..., :2], target_boxes[..., 2:] - centres), -1).clamp_(0)
    near = distances.view(-1, channels)[index].view(-1, channels // 4)
    wanted = sides.view(-1, 4)[index]
    at = wanted.long()
    two = F.cross_entropy(near, at.view(-1), reduction="none").view(at.shape) * (at + 1 - wanted)
    two = two + F.cross_entropy(near, (at + 1).view(-1), reduction="none").view(at.shape) * wanted
    return loss + (two.mean(-1, keepdim=True) * weight).sum() / total


def masks(coefficients: torch.Tensor, prototypes: torch.Tensor, objects: int) -> torch.Tensor:
    """The loss of masks, over all images at once: each assigned position's mask as a sum of prototypes."""
    b, each, h, w = prototypes.shape
    coefficients = coefficients.permute(0, 2, 1).contiguous()
    truth = _empty(prototypes, b, h, w)
    kept = objects * CHOSEN
    chosen = coefficients[:, :1].expand(b, kept, each)
    wanted = torch.zeros(b, kept, h, w, device=truth.device)
    made = (chosen @ prototypes.reshape(b, each, h * w)).view(b, kept, h, w)
    loss = _cross_entropy(made, wanted)
    inside = torch.zeros(b, kept, h, w, device=truth.device)
    return (loss * inside).mean((2, 3)).sum()


def keypoints(extra: torch.Tensor, objects: int) -> torch.Tensor:
    """The loss of keypoints: decoded at all positions, compared at the assigned ones."""
    b, channels, count = extra.shape
    points = extra.permute(0, 2, 1).contiguous().view(b, count, channels // 3, 3)
    made = points.clone()
    made[..., :2] *= 2.0
    made[..., 0] += 1.0
    made[..., 1] += 1.0
    index = _indices(extra, b * objects * CHOSEN)
    mine = made.view(-1, channels // 3, 3)[index]
    truth = _empty(extra, *mine.shape)
    apart = (mine[..., 0] - truth[..., 0]).pow(2) + (mine[..., 1] - truth[..., 1]).pow(2)
    loss = (1 - torch.exp(-apart)).mean()
    return loss + F.binary_cross_entropy_with_logits(mine[..., 2], truth[..., 2])


def anchored(levels: Sequence[torch.Tensor], objects: int) -> torch.Tensor:
    """The loss of the repository yolov5: matched positions, and whether there is an object at all of them."""
    loss = torch.zeros(1, device=levels[0].device)
    for x in levels:
        b, each = x.shape[0], x.shape[-1]
        index = _indices(x, b * objects * MATCHES // len(levels))
        there = torch.zeros(x.shape[:4], dtype=x.dtype, device=x.device)
        near, far, _, scores = x.view(-1, each)[index].split((2, 2, 1, each - 5), 1)
        made = torch.cat((near.sigmoid() * 2 - 0.5, (far.sigmoid() * 2) ** 2 * 3.0), 1)
        iou = _iou(made, torch.empty_like(made)).squeeze(-1)
        loss = loss + (1 - iou).mean() + F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        loss = loss + _cross_entropy(x[..., 4], there, "mean")
    return loss


def decoded(levels: Sequence[torch.Tensor], bins: int, sums: nn.Module, extra: torch.Tensor | None) -> Output:
    """The outputs of the package's head in validation: boxes and scores of every position."""
    b = levels[0].shape[0]
    whole = torch.cat([x.view(b, x.shape[1], -1) for x in levels], 2)
    distances, scores = whole.split((4 * bins, whole.shape[1] - 4 * bins), 1)
    centres, strides = _grid(levels)
    reach = sums(distances.view(b, 4, bins, -1).transpose(2, 1).softmax(1)).view(b, 4, -1)
    near, far = reach.chunk(2, 1)
    low, high = centres.t()[None] - near, centres.t()[None] + far
    boxes = torch.cat(((low + high) / 2, high - low), 1) * strides.t()
    found = torch.cat((boxes, scores.sigmoid()), 1)
    found = found if extra is None else torch.cat((found, extra), 1)
    _suppress(found)
    return Output(found.sum(), found=found, **{f"level{n}": x for n, x in enumerate(levels)})


def anchored_decoded(levels: Sequence[torch.Tensor]) -> Output:
    """The same of the repository yolov5."""
    parts = []
    for x in levels:
        near, far, rest = x.sigmoid().split((2, 2, x.shape[-1] - 4), 4)
        parts.append(torch.cat((near * 2, (far * 2) ** 2, rest), 4).view(x.shape[0], -1, x.shape[-1]))
    found = torch.cat(parts, 1)
    return Output(found.sum(), found=found)


def _suppress(found: torch.Tensor) -> None:
    """Before non-maximum suppression, which takes one image after the other, all are turned and boxes made corners."""
    turned = found.transpose(-1, -2)
    corners = turned[..., :4] + 0
    joined = torch.cat((corners, turned[..., 4:]), -1)
    del corners, joined
