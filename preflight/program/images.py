"""torchvision's transforms and data sets -> train.image_size, data.samples; switches of torch.backends."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from preflight.program.bindings import bind, constant, first_origin, fold, same, under
from preflight.program.call_site import evaluates, role_of, targets
from preflight.python.module import Module, load_module
from preflight.python.objects import CallRecord
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Op

_CROPS = ("RandomResizedCrop", "RandomCrop", "CenterCrop", "Resize", "RandomSizedCrop")
"""Transforms that decide the size; of several in a row the crop comes last."""
DATA_SETS: Mapping[str, tuple[int, int]] = {
    "CIFAR10": (50_000, 32), "CIFAR100": (50_000, 32), "MNIST": (60_000, 28), "FashionMNIST": (60_000, 28),
    "KMNIST": (60_000, 28), "SVHN": (73_257, 32), "STL10": (5_000, 96),
}  # fmt: skip
"""Training samples and side of torchvision's data sets, as their papers give them."""


def image_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """The size of training images and the number of samples, from torchvision's transforms and data sets."""
    found: list[Binding] = []
    for record in records:
        if record.name.startswith("torchvision.datasets.") and record.method in DATA_SETS:
            samples, side = DATA_SETS[record.method]
            train = record.argument("train", 1)
            if train is None or constant(train) is not False:
                found.append(bind("data.samples", Const(samples, record.origin), Rank.default))
                found.append(bind("train.image_size", Const(side, record.origin), Rank.default))
    sizes = [record for record in records if _is_size(record)]
    training = [record for record in sizes if _role(record, project) != "validation"] or sizes
    crops = [record for record in training if record.method != "Resize"] or training
    for record in crops[:1]:
        size = record.argument("size", 0)
        if size is not None:
            found += under(record.conditions, [bind("train.image_size", _side(size))])
    return found


def _side(size: Expr) -> Expr:
    """The side of a square given as one number or as a pair of equal ones; the longer side of another rectangle."""
    if isinstance(size, Op) and size.operator == "tuple":
        pair = size.operands
    else:
        value = constant(size)
        if not isinstance(value, tuple):
            return size
        pair = tuple(Const(side, first_origin(size)) for side in value)
    if not pair:
        return size
    if all(same(side, pair[0]) for side in pair):
        return pair[0]
    return fold(Op("max", tuple(pair)), first_origin(size))


def _is_size(record: CallRecord) -> bool:
    return record.name.startswith("torchvision.transforms") and record.method in _CROPS


def _role(record: CallRecord, project: Project) -> str:
    """train or validation, by the name of the composed transform."""
    said = role_of(" ".join(targets(record, project)))
    return "validation" if evaluates(record) or said in ("validation", "test") else "train"


def switch_bindings(paths: Sequence[str], project: Project) -> list[Binding]:
    """`torch.backends.cudnn.benchmark = True` and the like, which are assignments rather than calls."""
    found: list[Binding] = []
    for path in paths:
        switched = project.remembered.get(_SWITCHED, partial(_switched, path, project), path)
        found += switched
    return found


def _switched(path: str, project: Project) -> tuple[Binding, ...]:
    module = load_module(path, project)
    return tuple(_switches(module)) if module is not None else ()


_SWITCHED: CacheKind[tuple[Binding, ...]] = CacheKind("the switches of torch.backends that a file sets")

_SWITCHES = {
    "cudnn.benchmark": "train.cudnn_benchmark",
    "cuda.matmul.allow_tf32": "train.tf32",
    "backends.cuda.matmul.allow_tf32": "train.tf32",
}


def _switches(module: Module) -> Iterator[Binding]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and len(node.targets) == 1:
            text = ast.unparse(node.targets[0])
            field = next((field for name, field in _SWITCHES.items() if text.endswith(name)), None)
            if field is not None and isinstance(node.value.value, bool):
                yield bind(field, Const(node.value.value, module.origin(node.value)), Rank.read)
            elif "CUDA_ALLOC_CONF" in text and isinstance(node.value.value, str):
                yield from allocator(node.value.value, Const(None, module.origin(node.value)))


def allocator(text: str, place: Const) -> Iterator[Binding]:
    """PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True,max_split_size_mb:128"."""
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        if name == "expandable_segments":
            yield bind(
                "train.allocator.expandable_segments", Const(value.strip().lower() == "true", place.origin), Rank.read
            )
        elif name == "max_split_size_mb" and value.strip().isdecimal():
            yield bind("train.allocator.max_split_size_mb", Const(int(value), place.origin), Rank.read)
