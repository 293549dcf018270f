"""`torch.load(..., map_location="cpu")` without mmap: every process that runs it holds the whole file in memory.

-> model.load, and the fact checkpoint_loaded with the place of the call. Where a checkpoint is loaded to a device, or
saved from one and loaded without map_location, its storages pass through the host one at a time. A model's
from_pretrained maps the file and copies nothing unless it casts: whether a type that is asked for is the file's own is
not known here, and neither is `model.load` then.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.program.bindings import bind, constant
from preflight.python.objects import CallRecord
from preflight.vocabulary.caches import regex
from preflight.vocabulary.reading import Binding, Fact
from preflight.vocabulary.values import Const

FACT = "checkpoint_loaded"

_MODEL = regex(r"\b(transformers\.)?(AutoModel\w*|\w+For[A-Z]\w+|\w+Model)\.from_pretrained$")
"""Classes of transformers that load weights; tokenizers, processors and configurations do not."""


def checkpoint_bindings(calls: Sequence[CallRecord]) -> list[Binding]:
    """model.load: torch.load onto the host, with or without mmap, or from_pretrained; empty without such a call."""
    found = [record for record in calls if _on_host(record) and not record.conditions]
    if found:
        mapped = all(_mapped(record) for record in found)
        return [bind("model.load", Const("torch-load-mmap" if mapped else "torch-load", found[0].origin))]
    models = [record for record in calls if makes_model(record)]
    if models and all(_keeps_type(record) for record in models):
        return [bind("model.load", Const("from-pretrained", models[0].origin))]
    return []


def makes_model(record: CallRecord) -> bool:
    """Whether a call loads the weights of a model of transformers."""
    return record.method == "from_pretrained" and _MODEL.search(record.name) is not None


def _keeps_type(record: CallRecord) -> bool:
    """Whether the tensors stay as the file has them, or go to a device one by one (device_map)."""
    if not record.complete:
        return False
    place = record.kwargs.get("device_map")
    if place is not None and constant(place) not in (None, "cpu"):
        return True
    types = [record.kwargs.get(name) for name in ("dtype", "torch_dtype")]
    return all(one is None or constant(one) == "auto" for one in types)


def _on_host(record: CallRecord) -> bool:
    where = record.argument("map_location", 1)
    return record.name == "torch.load" and record.complete and where is not None and constant(where) == "cpu"


def _mapped(record: CallRecord) -> bool:
    mapped = record.argument("mmap")
    return mapped is not None and constant(mapped) is not False


def checkpoint_facts(calls: Sequence[CallRecord]) -> list[Fact]:
    """The first call that loads a whole checkpoint into host memory in every process."""
    for record in calls:
        if _on_host(record) and not _mapped(record) and not record.conditions:  # one may be "in the main process"
            return [Fact(FACT, "torch.load", record.origin)]
    return []
