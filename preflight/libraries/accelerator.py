"""What a program trains on, where it says so: -> machine.accelerator ("cpu": no CUDA context, no pinned memory).

Lightning's Trainer and Fabric (accelerator="cpu"), transformers' TrainingArguments (use_cpu, no_cuda before 4.36),
Accelerate's Accelerator(cpu=True). What is left to the library takes a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.dialects.reading import Binding
from preflight.libraries.common import bind, constant, under
from preflight.libraries.precision import is_lightning_trainer
from preflight.libraries.spellings import spelled
from preflight.python.records import CallRecord
from preflight.values import Const

LIGHTNING = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "auto": "gpu"}
"""Lightning's accelerators; others (mps, tpu) have no CUDA context either, and are not known here."""
_SWITCHES = ("use_cpu", "no_cuda")
_ACCELERATOR = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")


def accelerator_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """machine.accelerator as the calls state it; nothing where they do not."""
    found: list[Binding] = []
    for record in records:
        found += under(record.conditions, _bindings(record))
    return found


def _bindings(record: CallRecord) -> list[Binding]:
    if is_lightning_trainer(record):
        said = record.kwargs.get("accelerator")
        return [] if said is None else [bind("machine.accelerator", spelled(said, LIGHTNING))]
    if record.name in _ACCELERATOR:
        switches = [record.argument("cpu", 4)]
    elif record.method.endswith("TrainingArguments"):
        switches = [record.kwargs.get(name) for name in _SWITCHES]
    else:
        return []
    said = next((one for one in switches if one is not None and constant(one) is True), None)
    return [] if said is None else [bind("machine.accelerator", Const("cpu", getattr(said, "origin", None)))]
