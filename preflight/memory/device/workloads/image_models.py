"""Image models by import target: of timm, of torchvision, or the user's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.attention import SDPA_TORCH, torch_before
from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.store import image_path
from preflight.memory.device.law.workload import Resolved, Workload, WorkloadRequest
from preflight.memory.device.workloads.own_step import begin, without_mask
from preflight.vocabulary.caches import regex
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.values import Cause, Unknown

FUSED_SINCE = (0, 9)
"""Release of timm whose models run scaled_dot_product_attention (`fused_attn` in timm/models/vision_transformer.py)."""
SIZES = Path(__file__).with_name("image_sizes.json")
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
ALIKE = (*VALUES_ONLY, "num_classes")
"""Keyword arguments that one law serves for: those of values, and of the last layer (which it has at 1,000 classes)."""
LIBRARIES = ("timm:", "torchvision:")
"""Targets that are built without importing code of the user's."""
_WITHOUT_ATTENTION = regex(
    r"(?!.*hybrid).*(res(net|next|nest|2net|mlp)|regnet|vgg|densenet|mobilenet|efficientnet|convnext|darknet|inception|"
    r"xception|mnasnet|nfnet|dla\d|dpn\d|hrnet|lcnet|tinynet|rexnet|ghostnet|mixnet|gernet|alexnet|googlenet|squeezenet|"
    r"shufflenet|mixer|gmlp|poolformer).*"
)
"""Families of timm and torchvision without scaled_dot_product_attention: the setting changes nothing. Nearly all take
images of any side."""
_SIDE = "train.image_size"


def _older(target: str, job: Job) -> str | None:
    """The stated release that has no scaled_dot_product_attention, or does not run it."""
    if torch_before(job, SDPA_TORCH):
        return f"torch {job.software['torch']}"
    timm = job.software.get("timm")
    return f"timm {timm}" if target.startswith("timm:") and (release(timm) or NEWEST) < FUSED_SINCE else None


class ImageModel(Workload, frozen=True):
    """An image classifier. Its law is a function of the batch, at one image size."""

    kind: ClassVar[str] = "images"
    image_loop: ClassVar[bool] = True
    target: str
    kwargs: Mapping[str, object]
    image_size: int

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return asked.target is not None

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        train, target = asked.job.train, asked.known_as
        setup = begin(asked)
        if isinstance(setup, Unknown):
            return setup
        image = train.image_size or int(asked.config.get("image_size", usual_size(target)))
        kwargs = {k: v for k, v in (asked.job.model.kwargs or {}).items() if k not in VALUES_ONLY}
        # Shipped laws are of scaled_dot_product_attention.
        attends = not _WITHOUT_ATTENTION.fullmatch(target)
        written_out = attends and train.attention in ("eager", "math")
        if attends and not written_out and (older := _older(target, asked.job)) is not None:
            words = f"{older} computes attention step by step, and keeps more than the law of {target} has"
            return Unknown(words, Cause.not_modelled)
        attention = "math" if written_out else "sdpa"
        setup = replace(without_mask(setup), attention=attention, channels_last=bool(train.channels_last))
        lengths = {"b": train.batch_size or 1, "i": image}
        return Resolved(cls(target, kwargs, image), asked.name, "image-classification", {}, lengths, setup)

    def wire(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "kwargs": dict(self.kwargs),
            "task": "image-classification",
            "image_size": self.image_size,
        }

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        """The side of the images of a model that takes any: the data decide it."""
        given = {"image_size", "img_size"} & {*(job.model.config or {}), *self.kwargs}
        if job.train.image_size is not None or given or not _WITHOUT_ATTENTION.fullmatch(self.target):
            return {}
        return {_SIDE: f"the data decide it, no file states it, and {self.image_size} is taken, the model's usual side"}

    @property
    def filed(self) -> str:
        return law_name(self.target)

    @property
    def extra(self) -> str:
        kwargs = {k: v for k, v in self.kwargs.items() if k not in ALIKE}
        return f"image={self.image_size}" + (f" {json.dumps(kwargs, sort_keys=True, default=str)}" if kwargs else "")

    @property
    def foreign(self) -> str | None:
        return None if self.target.startswith(LIBRARIES) else self.target

    @property
    def prefetches(self) -> bool:
        return self.target.startswith("timm:")

    @property
    def convolutional(self) -> bool:
        return True

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
        from preflight.memory.device.fit.one_model import make_at

        return make_at(self.wire(), kind, resolved.setup, resolved.lengths, run, self.free)


def law_name(target: str) -> str:
    """The name of a target's law file: timm's names without the tag of their weights."""
    home, _, name = target.partition(":")
    return f"{home}-{name.partition('.')[0]}" if home == "timm" else target.replace(":", "-")


def spelled(name: str) -> str | None:
    """The target, like "timm:resnet50.a1_in1k", of a name that says the library; None for any other name."""
    for home, patterns in _SPELLINGS.items():
        for pattern in patterns:
            match = re.fullmatch(pattern, name)
            if match is not None and match[1] not in _MAKERS:
                return f"{home}:{match[1]}"
    return None


def shipped(name: str) -> str | None:
    """The target of a plain name: timm's model of that name, if its law ships; else None."""
    plain = re.fullmatch(r"\w[\w.]*", name) is not None
    return f"timm:{name}" if plain and os.path.isfile(image_path(f"timm-{name.partition('.')[0]}")) else None


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
