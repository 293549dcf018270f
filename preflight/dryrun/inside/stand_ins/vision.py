"""Image data sets of torchvision that cannot be had: made up, with the sizes and numbers of the real ones."""

from __future__ import annotations

import functools
import io
import os
import re
import sys
from typing import Any

import torch

from ..patches import wrap
from ..tape import Tape

PICTURE = (500, 400)
"""Width and height of a made-up picture: ImageNet's average is 469 x 387."""
CLASSES, PICTURES = 1000, 4096
LIKE = ("MNIST", "FashionMNIST", "KMNIST")
"""Data sets with the pictures and classes of MNIST. EMNIST and QMNIST have more."""


_SIZES = ("size", "res", "resolution", "image_size", "img_size", "crop_size")
_SIDE = re.compile(r"(?<![0-9a-zA-Z])(\d{2,4})(?:x\1)?(?![0-9a-zA-Z])")


def size_stated(folder: str) -> tuple[int, int] | None:
    """The size of the pictures in a folder: that of the option beside the one that names the folder (`--hr_path DIR
    --hr_size 512`), else a number in its name that sides of pictures have (`lr-256`)."""
    words = [word for one in sys.argv[1:] for word in (one.split("=", 1) if one.startswith("--") else [one])]
    options = {words[i].lstrip("-").replace("-", "_"): words[i + 1] for i in range(len(words) - 1)}
    for name, value in options.items():
        stem = name.rpartition("_")[0]
        if stem and len(value) > 1 and folder.startswith(value.rstrip("/")):
            sides = [options.get(f"{stem}_{one}", "") for one in _SIZES]
            known = next((int(one) for one in sides if one.isdigit()), 0)
            if known:
                return known, known
    found = [int(one) for one in _SIDE.findall(folder) if int(one) % _EIGHT == 0 and int(one) <= _LARGEST]
    return (found[-1], found[-1]) if found and found[-1] >= _SMALLEST else None


_EIGHT, _SMALLEST, _LARGEST = 8, 32, 1024
"""What sides of pictures are multiples of, and between."""


def encoded() -> io.BytesIO:
    """A made-up picture as a file."""
    return io.BytesIO(_jpeg())


@functools.cache
def _jpeg() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", PICTURE).save(file, "JPEG")
    return file.getvalue()


def mnist(module: Any, tape: Tape) -> None:
    """torchvision.datasets.MNIST and its kin."""
    cls = module.MNIST
    exists, real = cls._check_exists, cls._load_data

    def load(self: Any) -> Any:
        if exists(self):
            return real(self)
        tape.data_made_up = True
        name = type(self).__name__
        tape.assume(f"{name} is made up, with as many pictures as MNIST has", "" if name in LIKE else "model.config")
        count = 60000 if self.train else 10000
        return torch.randint(0, 255, (count, 28, 28), dtype=torch.uint8), torch.arange(count) % 10

    cls.download = lambda self: None
    cls._check_exists, cls._load_data = lambda self: True, load


def cifar(module: Any, tape: Tape) -> None:
    """torchvision.datasets.CIFAR10 and CIFAR100."""

    def made(real: Any, self: Any, root: Any, train: bool = True, transform: Any = None,
             target_transform: Any = None, download: bool = False) -> Any:  # fmt: skip
        try:
            return real(self, root, train, transform, target_transform, False)
        except Exception:
            tape.data_made_up = True
            tape.assume(f"{type(self).__name__} is made up, with as many pictures as CIFAR has")
        import numpy

        module.VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        classes, count = 100 if "100" in type(self).__name__ else 10, 50000 if train else 10000
        self.train, self.classes = train, [str(i) for i in range(classes)]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.data = numpy.zeros((count, 32, 32, 3), dtype=numpy.uint8)
        self.targets = [i % classes for i in range(count)]
        return None

    wrap(module.CIFAR10, "__init__", made)


def assume_pictures(folder: Any, tape: Tape) -> None:
    """Pictures of a folder with a folder for each class: both decide sizes."""
    width, height = PICTURE
    tape.data_made_up = True
    tape.assume(f"the pictures of {folder} are made up: {width} x {height}", "train.image_size")
    tape.assume(f"the classes of {folder} are made up: {CLASSES}", "model.config")


def folder(module: Any, tape: Tape) -> None:
    """torchvision.datasets.ImageFolder of a folder that is not there."""

    def made(real: Any, self: Any, root: Any, transform: Any = None, target_transform: Any = None,
             loader: Any = None, **kwargs: Any) -> Any:  # fmt: skip
        if os.path.isdir(root):
            return real(self, root, transform, target_transform, **({"loader": loader} if loader else {}), **kwargs)
        from PIL import Image

        assume_pictures(root, tape)
        module.VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        self.loader = lambda _: Image.new("RGB", PICTURE)
        self.classes = [f"n{i:04}" for i in range(CLASSES)]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = self.imgs = [(f"{i}.jpg", i % CLASSES) for i in range(PICTURES)]
        self.targets = [i for _, i in self.samples]
        return None

    wrap(module.ImageFolder, "__init__", made)
