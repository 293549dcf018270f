"""Transforms of torchvision and albumentations, and data sets -> train.image_size, data.samples."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from preflight.program.bindings import bind, constant, first_origin, fold, same, under
from preflight.program.call_site import around, chain_of, evaluates, role_of, scope_of, targets
from preflight.program.loops import in_turns
from preflight.python.objects import CallRecord, Instance
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_CROPS = ("RandomResizedCrop", "RandomCrop", "CenterCrop", "Resize", "RandomSizedCrop")
"""Transforms that decide the size; of several in a row the last one does."""
_ALBUMENTATIONS = "albumentations."
_PAIRS = {"RandomSizedCrop": 1}
"""Position of `height` among the arguments of albumentations' transforms before release 2, where it is not the first;
`width` follows. From 1.4 on, some take `size=(height, width)` in the place of the two."""
DATA_SETS: Mapping[str, tuple[int, int]] = {
    "CIFAR10": (50_000, 32), "CIFAR100": (50_000, 32), "MNIST": (60_000, 28), "FashionMNIST": (60_000, 28),
    "KMNIST": (60_000, 28), "SVHN": (73_257, 32), "STL10": (5_000, 96),
}  # fmt: skip
"""Training samples and side of torchvision's data sets, as their papers give them."""


def image_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """The size of training images and the number of samples, from transforms and torchvision's data sets."""
    found: list[Binding] = []
    sets = [record for record in records if _is_training_set(record)]
    for record in sets:
        samples, side = DATA_SETS[record.method]
        own = {"data.samples": samples, "train.image_size": side}
        made = [bind(field, Const(value, record.origin), Rank.default) for field, value in own.items()]
        found += under(record.conditions, made)
    every = [record for record in records if _is_size(record) and _size(record) is not None]
    apart = _apart(every, sets)
    if apart is None:
        return [*found, *_sizes(every, records, project)]
    sure = apart.reached and (
        apart.object("transform", 2) is None or isinstance(apart.object("transform", 2), Instance)
    )
    return found if sure else [*found, bind("train.image_size", Const(_CHOSEN, apart.origin), Rank.read)]


def _is_training_set(record: CallRecord) -> bool:
    named = record.name.startswith("torchvision.datasets.") and record.method in DATA_SETS
    train = record.argument("train", 1) if named else None
    return named and (train is None or constant(train) is not False)


def _apart(sizes: Sequence[CallRecord], sets: Sequence[CallRecord]) -> CallRecord | None:
    """A data set with a size of its own where all transforms to a size stand in functions that nobody is seen to call,
    which make other data sets: the name of a data set chooses among such functions. None without one."""
    if not sizes or any(record.reached for record in sizes):
        return None
    places = {(record.path, record.function) for record in sizes}
    others = [record for record in sets if (record.path, record.function) not in places]
    return next((one for one in others if one.reached), others[0] if others else None)


_CHOSEN = Unknown("the program chooses among data sets with images of several sizes", Cause.not_read)


def _sizes(every: Sequence[CallRecord], records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """The size that the training's transforms end with. Different ones beside each other are unknown."""
    training = [record for record in every if _role(record, project) != "validation"] or every
    composed = {_compose(record, project): record for record in training}.values()
    last = [one for record in composed for one in in_turns(record, training, records, project)]
    sizes = [(record, _side(_size(record) or Const(None))) for record in last]
    always = [(record, size) for record, size in sizes if not _perhaps(record)]
    later = [_side(record.argument("size", 1) or Const(None)) for record in _resizes(records)] if always else []
    if any(not same(size, always[0][1]) for size in (*(size for _, size in always), *later)):
        words = "the program transforms images to several sizes, and which of them train is not known"
        return [bind("train.image_size", Const(Unknown(words, Cause.not_read), always[0][0].origin), Rank.read)]
    found = [one for record, size in always[:1] for one in under(record.conditions, [bind("train.image_size", size)])]
    for record, size in sizes:
        if _perhaps(record):
            found += under(record.conditions, [bind("train.image_size", size)])
    return found


def _resizes(records: Sequence[CallRecord]) -> list[CallRecord]:
    """`interpolate(images, size=(512, 512))` in a training function: of the images, or of what the model returns."""
    found = [r for r in records if r.name == "torch.nn.functional.interpolate" and "." not in (r.function or "")]
    return [r for r in found if not evaluates(r) and not isinstance(constant(r.argument("size", 1)), Unknown)]


def _compose(record: CallRecord, project: Project) -> ast.AST:
    """The call that a transform is in (`Compose([...])`), of whose transforms the last decides.

    Transforms that a function appends to a list are one after the other too.
    """
    call = next((node for node in around(record, project) if isinstance(node, ast.Call)), None)
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend"):
        return scope_of(record, project) or call
    return call or record.node


def _perhaps(record: CallRecord) -> bool:
    """Whether a condition decides that the transform is made."""
    return any(isinstance(constant(condition), Unknown) for condition in record.conditions)


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
    return record.name.startswith(("torchvision.transforms", _ALBUMENTATIONS)) and record.method in _CROPS


def _size(record: CallRecord) -> Expr | None:
    """The size that a transform gives: one number, or a pair."""
    if not record.name.startswith(_ALBUMENTATIONS):
        return record.argument("size", 0)
    first = _PAIRS.get(record.method, 0)
    if (size := record.argument("size", None if first else 0)) is not None and not record.argument("width", first + 1):
        return size if isinstance(constant(size), tuple) or isinstance(size, Op) else None
    high, wide = record.argument("height", first), record.argument("width", first + 1)
    return Op("tuple", (high, wide), first_origin(high, wide)) if high is not None and wide is not None else None


def _role(record: CallRecord, project: Project) -> str:
    """train or validation, by the name of the composed transform, or of what a caller makes with it."""
    if evaluates(record):
        return "validation"
    said = (role_of(" ".join(targets(one, project))) for one in reversed(chain_of(record)))
    return "validation" if next((one for one in said if one), "train") != "train" else "train"
