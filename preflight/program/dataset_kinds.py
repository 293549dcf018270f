"""Whether a data set is indexed or iterated -> the fact dataset_kind: "map" or "iterable".

A DataLoader divides the indices of a data set among its workers, so their number does not matter. A data set that is
iterated is run by every worker: how often a sample comes, and when, depends on the number of workers. No fact means
that it is not known for every loader.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.program.bindings import constant
from preflight.program.loaders import indexes, is_loader, validates
from preflight.python.objects import Abstract, Attribute, CallRecord, ClassValue, Container, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Fact
from preflight.vocabulary.values import Origin

_MAP = (
    "torchvision.datasets.", "torchaudio.datasets.", "torch.utils.data.TensorDataset", "torch.utils.data.random_split",
    "torch.utils.data.dataset.TensorDataset", "torch.utils.data.StackDataset", "datasets.load_from_disk",
    "datasets.Dataset.from_", "datasets.arrow_dataset.Dataset.from_",
)  # fmt: skip
"""Beginnings of the names of functions and classes that make indexed data sets."""
_OF_OTHERS = ("torch.utils.data.Subset", "torch.utils.data.ConcatDataset", "torch.utils.data.dataset.Subset")
"""Data sets that are indexed, and take another's indices."""
_HUB = ("datasets.load_dataset", "datasets.load.load_dataset")
_ITERATED = ("IterableDataset", "IterDataPipe", "WebDataset", "StreamingDataset", "DataPipeline")
_STREAMED = ("to_iterable_dataset", "to_iterable")
_GIVEN = ("train_dataset", "dataset")
DEPTH = 12
"""Calls on a data set, one behind the other, that are followed back to where it is made."""


def dataset_kind(records: Sequence[CallRecord], project: Project) -> list[Fact]:
    """The fact, if it is known for all training data."""
    found: list[tuple[str | None, Origin]] = []
    for record in records:
        if is_loader(record) and validates(record, project):
            continue
        if is_loader(record) and indexes(record):
            found.append(("map", record.origin))
        elif (given := _given(record)) is not None:
            found += [(_kind(one, DEPTH), record.origin) for one in alternatives(given)]
    for kind in ("iterable", None, "map"):
        place = next((origin for one, origin in found if one == kind), None)
        if place is not None:
            return [] if kind is None else [Fact("dataset_kind", kind, place)]
    return []


def _given(record: CallRecord) -> Abstract | None:
    """The data set that a loader or a trainer is given."""
    if is_loader(record):
        return record.object("dataset", 0) or record.value
    if record.method.endswith("Trainer"):
        return next((given for name in _GIVEN if (given := record.object(name)) is not None), None)
    return None


def _kind(value: Abstract | None, depth: int) -> str | None:
    if isinstance(value, Container):
        return "map" if value.is_sequence else None
    if isinstance(value, Attribute):  # `splits["train"]`, `loaded.data`
        return _kind(value.receiver, depth - 1) if depth else None
    if not isinstance(value, Instance) or not depth:
        return None
    if value.cls is not None:
        return _of_class(value.cls)
    if any(part.endswith(_ITERATED) or part in _STREAMED for part in value.made_by.split(".")):
        return "iterable"
    if value.made_by.startswith(_MAP):
        return "map"
    if value.made_by.startswith(_OF_OTHERS):
        return "map"
    return _of_hub(value, depth) if value.made_by.startswith(_HUB) else None


def _of_hub(value: Instance, depth: int) -> str | None:
    """load_dataset(..., streaming=True), or an object that is made from its result."""
    record = value.record
    if record is None:
        return None
    if record.method != "load_dataset":
        return _kind(record.receiver_object, depth - 1) if record.receiver_object is not None else None
    streaming = record.argument("streaming")
    if streaming is None:
        return "map" if record.complete else None
    said = constant(streaming)
    return "iterable" if said is True else "map" if said is False else None


def _of_class(cls: ClassValue) -> str | None:
    """A class of the project: by its base classes, else by its methods."""
    if any(base.rpartition(".")[2].endswith(_ITERATED) for base in cls.external_bases):
        return "iterable"
    methods = {name for one in cls.lineage() for name in one.attributes if isinstance(name, str)}
    if "__getitem__" in methods:
        return "map"
    if "__iter__" in methods:
        return "iterable"
    return "map" if any(base.startswith(_MAP) for base in cls.external_bases) else None
