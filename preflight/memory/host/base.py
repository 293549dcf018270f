"""Memory of a Python process before it loads data: the sum of the packages that it imports, each measured.

The size of a part is what it adds to a process with the other parts: `torch` alone takes 143.5 MiB, with `transformers`
the sum of the two. Anonymous memory after the import; torch 2.13, transformers 5.23, lightning 2.6, datasets 5.2,
pandas 3.1, scipy 1.1x, Python 3.11, Debian 12 (benchmarks/accuracy/host, group "base").
"""

from __future__ import annotations

from collections.abc import Iterable

from preflight.memory.host.constants import MIB, Measured

PARTS = {
    "torch": 143.5 * MIB,
    "cuda build": 140.5 * MIB,
    "dynamo": 67.9 * MIB,
    "transformers": 22.2 * MIB,
    "trainer": 10.4 * MIB,
    "scipy": 37.4 * MIB,
    "pandas": 32.3 * MIB,
    "datasets": 22.4 * MIB,
    "accelerate": 4.1 * MIB,
    "lightning": 26.3 * MIB,
    "torchvision": 9.6 * MIB,
    "timm": 30.0 * MIB,
    "albumentations": 34.0 * MIB,
    "cv2": 4.0 * MIB,
}
"""Bytes of each part. "cuda build": added to the import alone by torch's libraries for CUDA, without a GPU (2.13.0 with
CUDA 13.0: 284.0 MiB, where the build for the processor takes 143.0). `dynamo` is torch._dynamo with sympy, which an
optimizer imports when it is made (`add_param_group`, torch/_compile.py), as Trainer, peft, lightning and torchvision
do; `trainer` is transformers.Trainer
with accelerate."""

SHARED = 12.3 * MIB
"""The common part of pandas and scipy, counted once if both are loaded."""

NEEDS: dict[str, tuple[str, ...]] = {
    "torch": (),
    "sympy": ("dynamo",),
    "transformers": ("transformers", "dynamo", "trainer"),
    "peft": ("transformers", "dynamo", "trainer"),
    "trl": ("transformers", "dynamo", "trainer", "datasets", "pandas"),
    "sentence_transformers": ("transformers", "dynamo", "trainer"),
    "setfit": ("transformers", "dynamo", "trainer", "datasets", "pandas"),
    "axolotl": ("transformers", "dynamo", "trainer", "datasets", "pandas"),
    "llamafactory": ("transformers", "dynamo", "trainer", "datasets", "pandas"),
    "accelerate": ("accelerate",),
    "datasets": ("datasets", "pandas"),
    "pandas": ("pandas",),
    "scipy": ("scipy",),
    "torchvision": ("torchvision", "dynamo"),
    "timm": ("torchvision", "dynamo", "timm"),
    "albumentations": ("albumentations",),
    "cv2": ("cv2",),
    "lightning": ("lightning", "dynamo", "transformers"),
    "pytorch_lightning": ("lightning", "dynamo", "transformers"),
}
"""Package -> the parts that it brings: transformers with a model class and Trainer, lightning with torchmetrics (which
imports transformers where it is installed)."""

LAZY = 17.6 * MIB
"""Low end of transformers: it is imported, but none of its classes is used."""


def parts_of(packages: Iterable[str], trains: bool) -> frozenset[str]:
    """The parts that a program's packages need. `trains`: an optimizer makes a step in this process."""
    found = {part for name in packages for part in NEEDS.get(name.partition(".")[0], ())}
    if "trainer" in found:
        found.discard("accelerate")
    return frozenset({"torch", *found, *(("dynamo",) if trains else ())})


def bytes_of(parts: frozenset[str]) -> float:
    """Bytes of a process with these parts."""
    shared = SHARED if {"pandas", "scipy"} <= parts else 0.0
    return sum(PARTS[name] for name in parts) - shared


def base_of(packages: Iterable[str], trains: bool, cuda: bool = False) -> Measured:
    """Bytes of one rank before it loads data: low, expected, high. `cuda`: its torch is a build for CUDA."""
    parts = parts_of(packages, trains) | ({"cuda build"} if cuda else frozenset())
    expected = bytes_of(parts)
    least = bytes_of(parts - {"transformers", "dynamo", "trainer"}) + LAZY if "transformers" in parts else expected
    return Measured(least, expected, max(expected, bytes_of(parts | {"dynamo", "pandas", "scipy", "cuda build"})))
