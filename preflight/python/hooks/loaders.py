"""DataLoaders and data sets: what one sample is, how many there are, and which arrays stay in memory.

A loader's call asks its data set for a sample, as a worker does, with an index of which only the type is known.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.archives import IN_FILE
from preflight.python.arrays import (
    Array,
    arithmetic,
    array_bytes,
    array_of,
    derived,
    known,
    make,
    number,
    shape_of,
    view,
)
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.files import path_text
from preflight.python.hooks.pictures import UNREAD, apply, picture
from preflight.python.hooks.unread_data import keeps_unread
from preflight.python.known_kinds import INDEX, is_number, of_file_names
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    Container,
    Either,
    FunctionValue,
    Instance,
    Key,
    alternatives,
    is_expr,
    sequence,
    to_expr,
)
from preflight.python.steps import COLLATE, SAMPLE, STEP
from preflight.python.texts import object_bytes, text_of
from preflight.vocabulary.budgets import KEPT_OBJECTS
from preflight.vocabulary.values import Cause, Const, Expr, unknown

SAMPLES = "samples"
"""The key of a loader's state for its `Samples`."""
SCALAR = 8
"""Bytes of a number in a collated batch: int64 or float64."""
TEXT = 0
"""Strings are not collated; a name takes next to nothing beside what it names."""
DATASET = "dataset"
_PARTS = "parts"


class Samples(Struct, frozen=True):
    """What a loader hands out. `bytes` of one sample, `tensors` in it, `count` of samples; `held`: bytes of arrays that
    the data set keeps, of tensors or of arrays; `views`: a sample has their memory; `numpy`: numpy makes it. None: not
    known."""

    bytes: Expr | None
    count: Expr | None
    held: Expr | None
    kind: str = "arrays"
    views: bool = False
    numpy: bool = False
    tensors: int = 1


def _loader(record: CallRecord, ev: Evaluator) -> Abstract | None:
    data = record.object("dataset", 0)
    if data is None:
        return None
    made = Instance(record.qualified, record=record, origin=record.origin)
    made.state[SAMPLES] = found = samples_of(data, record, ev)
    if found.bytes is not None:
        made.state[SAMPLE] = item_of(data, ev, record)
        made.state[COLLATE] = _own_collate(record)
    if (step := ev.steps_of_loaders.get(id(record.node))) is not None:
        made.state[STEP] = step
    return made


def _own_collate(record: CallRecord) -> Abstract | None:
    """A function of the program's own that makes batches of samples."""
    given = record.object("collate_fn", 6)
    own = isinstance(given, FunctionValue) or (isinstance(given, Instance) and given.cls is not None)
    return given if own else None


def _trainer(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """transformers.Trainer: its loader collates what the data set gives, unless a collator of its own pads it."""
    data = record.object("train_dataset")
    if data is None:
        return None
    made = Instance(record.qualified, record=record, origin=record.origin)
    found = samples_of(data, record, ev)
    own = record.object("data_collator", 2)
    made.state[SAMPLES] = replace(found, bytes=None) if own is not None else found
    return made


def samples_of(data: Abstract, record: CallRecord, ev: Evaluator) -> Samples:
    """What a loader of this data set hands out; nothing is known of one that only some runs make."""
    made_at = data.record if isinstance(data, Instance) else None
    if made_at is not None and any(not any(c is d for d in record.conditions) for c in made_at.conditions):
        return Samples(None, None, None)
    sample = item_of(data, ev, record)
    arrays = list(_arrays(sample))
    size = bytes_of(sample, ev)
    collate = record.object("collate_fn", 6)
    if _own_collate(record) is not None and collate is not None:
        batch = ev.call(collate, (sequence([sample, sample], origin=record.origin),))
        collated = bytes_of(batch, ev)
        if collated is not None and number(collated) != 0:
            size = arithmetic(ev, "//", collated, Const(2))
        elif not _regroups(collate):
            size = None
        arrays = list(_arrays(batch)) or arrays
    elif collate is not None and not (isinstance(collate, Const) and collate.value is None):
        size = None  # a library's collator may pad
    held, times, objects, unread, texts = kept(data, ev)
    total: Expr | None = Const(0)
    for one in held.values():
        if total is None or (one.storage in times and times[one.storage] is None):
            total = None
        elif all(known(size) for size in one.shape):
            size_of_all = arithmetic(ev, "*", array_bytes(ev, one), times.get(one.storage) or Const(1))
            total = arithmetic(ev, "+", total, size_of_all)
        else:
            total = None
    own = [a for a in arrays if a.storage in held]
    libraries = {one.library for one in held.values()}
    in_objects: Expr = Const(0)
    for more in objects:
        in_objects = arithmetic(ev, "+", in_objects, more)
    libraries = libraries if (number(in_objects) or 0) <= (number(total) or 0 if total is not None else 0) else set()
    total = arithmetic(ev, "+", total, in_objects) if total is not None and objects else total
    return Samples(
        bytes=size,
        count=length_of(data, ev),
        held=None if unread else total,
        kind="tensors"
        if libraries == {"torch"}
        else "arrays"
        if libraries or not objects
        else "strings"
        if texts
        else "objects",
        views=bool(arrays) and len(own) == len(arrays),
        numpy=bool(arrays) and (arrays[0].library == "numpy" or arrays[0].by_numpy),
        tensors=max(1, len(arrays)),
    )


def _regroups(collate: Abstract) -> bool:
    """`lambda batch: tuple(zip(*batch))`: the samples as they are, in another order."""
    if not isinstance(collate, FunctionValue):
        return False
    calls = [node for node in ast.walk(collate.node) if isinstance(node, ast.Call)]
    return all(isinstance(call.func, ast.Name) and call.func.id in ("zip", "list", "tuple") for call in calls)


# --- one sample -------------------------------------------------------------------------------------------------------


def item_of(data: Abstract, ev: Evaluator, record: CallRecord) -> Abstract:
    """`dataset[index]`, or what its `__iter__` yields."""
    index = unknown(INDEX, record.origin, Cause.run_time)
    array = array_of(data)
    if array is not None:
        return derived(data, view(array, array.shape[1:], whole=False)) if array.shape else index
    if isinstance(data, Container) and data.is_sequence and data.items:
        return _alike(list(data.items.values()), ev, record)
    if isinstance(data, Either):
        return ev.on_both_sides(data, lambda one: item_of(one, ev, record))
    if not isinstance(data, Instance):
        return unknown("the data set is not known", record.origin)
    parts = data.state.get(_PARTS)
    if isinstance(parts, tuple):
        found = [item_of(one, ev, record) for one in parts]
        return sequence(found, "tuple", record.origin) if data.state.get("zipped") else _alike(found, ev, record)
    made = data.state.get("item")
    if callable(made):
        given = made()
        return given if given is not None else unknown("its samples are not known", record.origin)
    if data.cls is None:
        return unknown(f"the samples of {data.made_by} are not known", record.origin)
    method = class_attribute(data.cls, "__getitem__")
    if isinstance(method, FunctionValue):
        return ev.call(replace(method, self_value=data), (index,))
    iterate = class_attribute(data.cls, "__iter__")
    if isinstance(iterate, FunctionValue):
        ev.yielded.pop(id(iterate.node), None)
        ev.call(replace(iterate, self_value=data), ())
        given_by = ev.yielded.get(id(iterate.node))
        if given_by:
            return _alike(given_by, ev, record)
    return unknown("the samples of the data set are not known", record.origin)


def _alike(items: list[Abstract], ev: Evaluator, record: CallRecord) -> Abstract:
    """The first of several samples, if all take the same."""
    sizes = [bytes_of(one, ev) for one in {id(one): one for one in items}.values()]
    plain = [size.value if isinstance(size, Const) else size for size in sizes]
    if any(size != plain[0] for size in plain[1:]):
        return unknown("its samples differ in size", record.origin)
    return items[0]


def bytes_of(value: Abstract, ev: Evaluator, _depth: int = 0) -> Expr | None:
    """The bytes of a sample, or of a batch: its arrays and numbers; None if a part of it is not known."""
    ev.step()
    array = array_of(value)
    if array is not None:
        return array_bytes(ev, array) if all(known(size) for size in array.shape) else None
    if isinstance(value, Either):
        size, *others = [bytes_of(one, ev, _depth + 1) for one in alternatives(value)]
        return size if all(one == size for one in others) else None
    if isinstance(value, Container) and not value.open and _depth < 8:
        total: Expr = Const(0)
        for item in value.items.values():
            part = bytes_of(item, ev, _depth + 1)
            if part is None:
                return None
            total = arithmetic(ev, "+", total, part)
        return total
    if isinstance(value, Attribute) and value.name.startswith("[") and of_file_names(value.receiver):
        return Const(TEXT)
    if text_of(value) is not None:
        return Const(TEXT)
    if not is_expr(value):
        return None
    expr = to_expr(value)
    if isinstance(ev.value_of(expr), str) or expr == Const(None):
        return Const(TEXT)
    if is_number(expr, ev):
        return Const(SCALAR, expr.origin)
    return Const(TEXT) if getattr(expr, "operator", "") == "concat" else None


def _arrays(value: Abstract, _seen: set[int] | None = None) -> Iterator[Array]:
    array, seen = array_of(value), set[int]() if _seen is None else _seen
    if array is not None:
        yield array
    elif isinstance(value, Container) and id(value) not in seen:
        seen.add(id(value))
        for item in value.items.values():
            yield from _arrays(item, seen)


# --- how many, and what is kept ---------------------------------------------------------------------------------------


def length_of(data: Abstract, ev: Evaluator) -> Expr | None:
    """`len(dataset)`; None if it is not known."""
    array = array_of(data)
    if array is not None:
        return array.shape[0] if array.shape and known(array.shape[0]) else None
    if isinstance(data, Container):
        return data.count if data.open else Const(len(data.items))
    if isinstance(data, Either):
        length, *others = [length_of(one, ev) for one in alternatives(data)]
        return length if all(one == length for one in others) else None
    if not isinstance(data, Instance):
        return None
    stated = data.state.get("length")
    if stated is not None:
        return stated if isinstance(stated, (Const,)) or known(stated) else None  # type: ignore[arg-type,return-value]
    parts = data.state.get(_PARTS)
    if isinstance(parts, tuple):
        return _length_of_parts(data, parts, ev)
    method = class_attribute(data.cls, "__len__") if data.cls is not None else None
    if not isinstance(method, FunctionValue):
        return None
    found = ev.call(replace(method, self_value=data), ())
    return to_expr(found) if is_expr(found) and known(to_expr(found)) else None


def _length_of_parts(data: Instance, parts: tuple[Abstract, ...], ev: Evaluator) -> Expr | None:
    found = [length_of(one, ev) for one in parts]
    if data.state.get("zipped") or len(found) == 1:
        return found[0]
    total: Expr = Const(0)
    for one in found:
        if one is None:
            return None
        total = arithmetic(ev, "+", total, one)
    return total


def kept(data: Abstract, ev: Evaluator) -> tuple[dict[int, Array], dict[int, Expr | None], list[Expr], bool, bool]:
    """What a data set and the program's own variables keep: arrays by their storage, how many there are of one (where
    a long list has it; None: not known), the bytes of lists of Python objects, whether the data set keeps more, and
    whether those lists have texts alone."""
    found, times, objects, seen = dict[int, Array](), dict[int, Expr | None](), list[Expr](), set[int]()
    own, unread, texts = {id(data)}, False, True
    waiting: list[Abstract] = [data, *(v for one in ev.modules.values() for v in one.frame.variables.values())]
    while waiting and len(seen) < KEPT_OBJECTS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        array = array_of(one)
        if array is not None and not array.mapped:
            found[array.storage] = array
        elif isinstance(one, Container):
            for inner in _arrays(one) if one.open else ():
                times.setdefault(inner.storage, one.count)
            if one.open and one.count is not None and one.items and next(_arrays(one), None) is None:
                each = object_bytes(next(iter(one.items.values())), ev)
                texts = texts and text_of(one.items.get(0)) is not None
                objects += [arithmetic(ev, "*", one.count, Const(8 + each))] if each is not None else []
                waiting += one.items.values() if each is None else ()
            else:
                waiting += one.items.values()
        elif isinstance(one, Instance):
            waiting += () if IN_FILE in one.state else one.attributes.values()
            unread = unread or (id(one) in own and keeps_unread(one, _variables(one, ev), ev))
            parts = one.state.get(_PARTS)
            if isinstance(parts, tuple):
                waiting += parts
                own.update(map(id, parts) if id(one) in own else ())
    of_found = {at: count for at, count in times.items() if at in found}
    return found, of_found, objects, unread or bool(waiting), texts


def _variables(data: Instance, ev: Evaluator) -> Mapping[Key, Abstract]:
    """The variables of the module that a data set's class is in."""
    module = data.cls.module if data.cls is not None else None
    return next((one.frame.variables for one in ev.modules.values() if one.module is module), {})


# --- data sets of libraries -------------------------------------------------------------------------------------------


def _data(record: CallRecord, parts: tuple[Abstract, ...], **state: object) -> Instance:
    made = Instance(record.qualified, record=record, origin=record.origin)
    made.state |= {_PARTS: parts, **state}
    return made


def _tensor_dataset(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return _data(record, tuple(record.arguments), zipped=True) if record.arguments else None


def _wrapping(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`Subset(dataset, indices)`: its samples are the data set's."""
    data, indices = record.object("dataset", 0), record.object("indices", 1)
    if data is None:
        return None
    count = length_of(indices, ev) if indices is not None else None
    return _data(record, (data,), length=count if count is not None else unknown("how many is not known"))


def _joined(record: CallRecord, ev: Evaluator) -> Abstract | None:
    given = record.object("datasets", 0)
    items = ev.iterate(given) if given is not None else None
    return _data(record, tuple(items)) if items else None


def _split(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`random_split(dataset, [80, 20])`"""
    data, lengths = record.object("dataset", 0), record.object("lengths", 1)
    sizes = ev.iterate(lengths) if lengths is not None else None
    if data is None or not sizes:
        return None
    whole, found = length_of(data, ev), list[Abstract]()
    for size in sizes:
        count, value = to_expr(size) if is_expr(size) else None, ev.value_of(to_expr(size)) if is_expr(size) else None
        if isinstance(value, float):
            total = number(whole) if whole is not None else None
            count = Const(int(total * value)) if total is not None else None
        found.append(_data(record, (data,), length=count if count is not None and known(count) else unknown("a part")))
    return sequence(found, "list", record.origin)


def _fake_data(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """torchvision.datasets.FakeData(size=1000, image_size=(3, 224, 224), transform=...)"""
    sides = shape_of(ev, [record.object("image_size", 1) or sequence([Const(3), Const(224), Const(224)])])
    if sides is None or len(sides) != 3:
        return None
    made = picture(record, (sides[1], sides[2], sides[0]))
    return _pictures(record, ev, made, record.argument("size", 0) or Const(1000))


def _pictures(record: CallRecord, ev: Evaluator, one: Abstract, count: Expr | None, at: int | None = None) -> Instance:
    transform = record.object("transform", at)

    def item() -> Abstract | None:
        given = apply(transform, one, record, ev) if transform is not None else one
        return sequence([given, Const(0)], "tuple", record.origin) if given is not None else None

    made = Instance(record.qualified, record=record, origin=record.origin)
    made.state["item"] = item
    made.state["length"] = count if count is not None else unknown("how many there are is not known")
    return made


_SETS = {"CIFAR10": (50_000, 10_000, 32, 3), "CIFAR100": (50_000, 10_000, 32, 3), "MNIST": (60_000, 10_000, 28, 1),
         "FashionMNIST": (60_000, 10_000, 28, 1), "KMNIST": (60_000, 10_000, 28, 1)}  # fmt: skip
"""torchvision's data sets that stay in memory, as bytes: samples of training and of testing, side, channels."""


def _torchvision(record: CallRecord, ev: Evaluator) -> Abstract | None:
    if record.method not in _SETS:  # a class of the project that extends one gives samples of its own
        return None
    train, test, side, channels = _SETS[record.method]
    said = record.argument("train", 1)
    trains = True if said is None else ev.value_of(said)
    if not isinstance(trains, bool):
        return None
    count = train if trains else test
    one = picture(record, (Const(side), Const(side), Const(channels)))
    made = _pictures(record, ev, one, Const(count), 2)
    shape = (Const(count), Const(side), Const(side), Const(channels))
    kept = make(record, Array(shape, "uint8", "numpy"))
    assert kept is not None
    made.attributes["data"] = kept
    return made


def _image_folder(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """torchvision.datasets.ImageFolder(root, transform): as many as there are pictures in the folders of `root`."""
    root, count = path_text(ev, record.object("root", 0)), None
    if root is not None:
        count = sum(_pictures_in(ev, posixpath.join(root, name)) for name in ev.project.listdir(root))
    one = picture(record, (UNREAD, UNREAD, Const(3)))
    return _pictures(record, ev, one, Const(count) if count else None, 1)


_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def _pictures_in(ev: Evaluator, folder: str) -> int:
    return sum(name.lower().endswith(_SUFFIXES) for name in ev.project.listdir(posixpath.normpath(folder)))


_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_WRAPPING = ("torch.utils.data.Subset", "torch.utils.data.dataset.Subset")

HOOKS: Mapping[str, Hook] = {
    **dict.fromkeys(_LOADERS, _loader),
    **dict.fromkeys(("transformers.Trainer", "transformers.Seq2SeqTrainer"), _trainer),
    "torch.utils.data.TensorDataset": _tensor_dataset, "torch.utils.data.StackDataset": _tensor_dataset,
    **dict.fromkeys(_WRAPPING, _wrapping),
    "torch.utils.data.ConcatDataset": _joined, "torch.utils.data.random_split": _split,
    "torchvision.datasets.FakeData": _fake_data, "torchvision.datasets.ImageFolder": _image_folder,
    **{f"torchvision.datasets.{name}": _torchvision for name in _SETS},
}  # fmt: skip
