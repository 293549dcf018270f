"""More data sets of torchvision that cannot be had: pictures of the sizes, and with the classes, of the real ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..patches import wrap
from ..tape import Tape
from .boxes import voc
from .vision import PICTURE


@dataclass(frozen=True)
class PictureSet:
    """What a data set holds. `size`: width and height where all of its pictures have the same."""

    module: str
    classes: int
    train: int
    test: int
    size: tuple[int, int] | None = None
    target: str = "class"


_HOME = "torchvision.datasets"
SETS = {
    "SVHN": PictureSet("svhn", 10, 73257, 26032, (32, 32)),
    "STL10": PictureSet("stl10", 10, 5000, 8000, (96, 96)),
    "USPS": PictureSet("usps", 10, 7291, 2007, (16, 16)),
    "EuroSAT": PictureSet("eurosat", 10, 27000, 27000, (64, 64)),
    "PCAM": PictureSet("pcam", 2, 262144, 32768, (96, 96)),
    "CelebA": PictureSet("celeba", 40, 162770, 19962, (178, 218), "attributes"),
    "GTSRB": PictureSet("gtsrb", 43, 26640, 12630),
    "Flowers102": PictureSet("flowers102", 102, 1020, 6149),
    "Food101": PictureSet("food101", 101, 75750, 25250),
    "OxfordIIITPet": PictureSet("oxford_iiit_pet", 37, 3680, 3669),
    "StanfordCars": PictureSet("stanford_cars", 196, 8144, 8041),
    "FGVCAircraft": PictureSet("fgvc_aircraft", 100, 6667, 3333),
    "DTD": PictureSet("dtd", 47, 1880, 1880),
    "Caltech101": PictureSet("caltech", 101, 8677, 8677),
    "Caltech256": PictureSet("caltech", 257, 30607, 30607),
    "Places365": PictureSet("places365", 365, 1803460, 36500),
    "ImageNet": PictureSet("imagenet", 1000, 1281167, 50000),
    "SUN397": PictureSet("sun397", 397, 108754, 108754),
    "Imagenette": PictureSet("imagenette", 10, 9469, 3925),
    "VOCDetection": PictureSet("voc", 20, 5717, 5823, None, "boxes"),
    "VOCSegmentation": PictureSet("voc", 21, 1464, 1449, None, "mask"),
    "Cityscapes": PictureSet("cityscapes", 34, 2975, 500, (2048, 1024), "mask"),
}
"""The pages of the data sets. STL10 has 100,000 pictures without classes beside these."""
_UNLABELED = 100000


def hooks(tape: Tape) -> dict[str, Callable[[Any], None]]:
    """A hook for each module of torchvision with such a data set."""

    def of(home: str) -> Callable[[Any], None]:
        names = [name for name, one in SETS.items() if one.module == home]

        def hook(module: Any) -> None:
            for name in names:
                _install(module, name, tape)

        return hook

    return {f"{_HOME}.{one.module}": of(one.module) for one in SETS.values()}


def _install(module: Any, name: str, tape: Tape) -> None:
    cls = getattr(module, name, None)
    if cls is None:
        return
    known, base = SETS[name], _visions(cls)

    def made(real: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(real).bind(self, *args, **kwargs)
        bound.apply_defaults()
        given: dict[str, Any] = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        try:
            real(self, *args, **{**kwargs, **({"download": False} if "download" in kwargs else {})})
            return
        except (OSError, RuntimeError, ImportError):
            tape.data_made_up = True
        tape.assume(
            f"{name} is made up, with the number of pictures and classes of the real one",
            "" if known.size else "train.image_size",
        )
        if known.target == "boxes":
            tape.assume(f"the boxes of {name} are made up: some in each picture", "train.image_size")
        stated = [given.get(one) for one in ("transforms", "transform", "target_transform")]
        base.__init__(self, given["root"], *(stated if stated[0] is None else [stated[0], None, None]))
        self._dry_count = _count(known, given)
        self.classes = [str(i) for i in range(known.classes)]
        self.class_to_idx = {one: i for i, one in enumerate(self.classes)}
        if known.target == "class":
            self.targets = self.labels = self._labels = [i % known.classes for i in range(self._dry_count)]

    def length(real: Any, self: Any) -> int:
        return int(getattr(self, "_dry_count", -1)) if hasattr(self, "_dry_count") else int(real(self))

    def taken(real: Any, self: Any, number: int) -> Any:
        if not hasattr(self, "_dry_count"):
            return real(self, number)
        if number >= self._dry_count:
            raise IndexError(number)
        found = _picture(known), _target(known, number)
        return found if self.transforms is None else self.transforms(*found)

    wrap(cls, "__init__", made)
    wrap(cls, "__len__", length)
    wrap(cls, "__getitem__", taken)


def _visions(cls: type) -> Any:
    return next(one for one in cls.__mro__ if one.__name__ == "VisionDataset")


def _count(known: PictureSet, given: dict[str, Any]) -> int:
    """How many pictures the part has that the program asks for."""
    part = given.get("split", given.get("image_set", given.get("train", True)))
    if part == "unlabeled":
        return _UNLABELED
    both = part in ("trainval", "all")
    training = part is True or (isinstance(part, str) and part.startswith("train"))
    return known.train + known.test if both else known.train if training else known.test


def _picture(known: PictureSet) -> Any:
    from PIL import Image

    return Image.new("L" if known.module == "usps" else "RGB", known.size or PICTURE)


def _target(known: PictureSet, number: int) -> Any:
    if known.target == "attributes":
        return torch.arange(known.classes) % 2
    if known.target == "mask":
        from PIL import Image

        return Image.new("L", known.size or PICTURE)
    if known.target == "boxes":
        return {"annotation": voc("JPEGImages", f"{number:06}.jpg", "person")}
    return number % known.classes
