"""`torch.load(..., map_location="cpu")` without mmap: every process that runs it holds the whole file in memory.

-> model.load, and the fact checkpoint_loaded with the place of the call. Where a checkpoint is loaded to a device, or
saved from one and loaded without map_location, its storages pass through the host one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.dialects.reading import Binding, Fact
from preflight.libraries.common import bind, constant
from preflight.python.records import CallRecord
from preflight.values import Const

FACT = "checkpoint_loaded"


def checkpoint_bindings(calls: Sequence[CallRecord]) -> list[Binding]:
    """model.load: torch.load onto the host, with or without mmap; nothing where a checkpoint is loaded otherwise."""
    found = [record for record in calls if _on_host(record) and not record.conditions]
    if not found:
        return []
    mapped = all(_mapped(record) for record in found)
    return [bind("model.load", Const("torch-load-mmap" if mapped else "torch-load", found[0].origin))]


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
