"""What scripts that train image models do beside the model's own step, where a Job does not say it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.memory.device.resolve import Resolved
    from preflight.memory.device.step.optimizers import Step
    from preflight.vocabulary.job import Job

SIZES = Path(__file__).with_name("image_sizes.json")
LAWS = Path(__file__).parents[1] / "law" / "laws" / "images"
_HUB = r"(?:https://)?(?:huggingface\.co/|hf\.co/)?(?:hf[-_]hub:)?timm/"
_SPELLINGS = {
    "timm": (rf"(?:timm:)?{_HUB}(\w[\w.]*)", r"timm:(\w[\w.]*)", r"timm\.models\.(?:\w+\.)?(\w+)"),
    "torchvision": (
        r"torchvision:(\w+)",
        r"torchvision\.models\.(?:(?!detection|segmentation|video|optical_flow|quantization)\w+\.)?(\w+)",
    ),
}
"""How configs and programs spell a model of a library: hub ids, import paths, and our own."""
_MAKERS = ("create_model", "get_model")
"""Functions of those modules that make a model of another name."""
USUAL_SIZE = 224
VALUES_ONLY = ("pretrained", "weights", "checkpoint_path", "progress")
"""Keyword arguments of timm's and torchvision's constructors that change nothing but weights' values."""
PREFETCHED = 2.25
"""Batches beside the one in use under timm's PrefetchLoader: the one before, which the loop still names, the next in
fp32, and its 8-bit original (timm/data/loader.py, PrefetchLoader.__iter__)."""
NAMED_STILL = 1
"""Batches beside the one in use in a plain loop: the one before, until the loop's variable is assigned anew."""


def is_image_model(resolved: Resolved) -> bool:
    """Whether a job's law is that of an import target for images."""
    return resolved.family is None and "target" in resolved.model


def is_timm(resolved: Resolved) -> bool:
    """Whether it is timm's, and so most likely trained by timm's train.py."""
    return str(resolved.model.get("target", "")).startswith("timm:")


def target_of(name: str) -> str | None:
    """A model of timm, torchvision or Ultralytics by any of its spellings, as a target: "timm:resnet50.a1_in1k"; None
    where it is no such spelling. A name alone is timm's where a law of it ships."""
    spelled = name.strip().rstrip("/")
    for home, patterns in _SPELLINGS.items():
        for pattern in patterns:
            match = re.fullmatch(pattern, spelled)
            if match is not None and match[1] not in _MAKERS:
                return f"{home}:{match[1]}"
    yolo = _yolo(spelled)
    if yolo is not None:
        return yolo
    plain = re.fullmatch(r"\w[\w.]*", spelled) is not None
    return f"timm:{spelled}" if plain and (LAWS / f"timm-{spelled.partition('.')[0]}.json.gz").is_file() else None


def _yolo(name: str) -> str | None:
    from preflight.memory.device.workloads.yolo import spelled  # which needs what needs this

    return spelled(name)


def usual_size(target: str) -> int:
    """Pixels of a side that a model of timm or torchvision was made for: input_size of its default_cfg, or that of its
    weights where their tag names another side ("..._384"); the crop of its default weights."""
    home, _, name = target.partition(":")
    sizes = _sizes().get(home, {})
    return sizes.get(name) or sizes.get(name.partition(".")[0], USUAL_SIZE)


@lru_cache(maxsize=1)
def _sizes() -> dict[str, dict[str, int]]:
    data = json.loads(SIZES.read_text(encoding="utf-8"))
    return {
        home: {name: int(size) for size, names in by_size.items() for name in names.split()}
        for home, by_size in data.items()
    }


def waiting(resolved: Resolved, dims: Mapping[str, int]) -> list[int]:
    """Bytes of the batches of images that wait on the GPU or are no longer used."""
    if not is_image_model(resolved) or "i" not in dims:
        return []
    batch = 3 * dims["i"] ** 2 * 4 * dims["b"]
    return [round(PREFETCHED * batch)] if is_timm(resolved) else [NAMED_STILL * batch]


def decayed(step: Step, job: Job, resolved: Resolved, trainable: Sequence[tuple[int, int]]) -> Step:
    """The optimizer's step with weight decay, which recipes for images have (timm's train.py by default, torchvision's
    references): SGD over lists adds it to copies of all gradients at once (torch/optim/sgd.py, _multi_tensor_sgd)."""
    plain = job.train.optimizer in ("sgd", "sgd-momentum") and job.train.optimizer_impl == "foreach"
    if not plain or not is_image_model(resolved):
        return step
    return replace(step, waves=(tuple(n * size for n, size in trainable), *step.waves))
