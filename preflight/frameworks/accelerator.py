"""Accelerate's Accelerator, and what a program trains on (machine.accelerator: a "cpu" has no CUDA context).

Lightning's Trainer and Fabric (accelerator="cpu"), transformers' TrainingArguments (use_cpu, no_cuda before 4.36),
Accelerate's Accelerator(cpu=True). What is left to the library takes a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.frameworks.lightning import is_lightning_trainer
from preflight.program.bindings import bind, constant, under
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import PRECISIONS, spelled
from preflight.vocabulary.values import Const

_SWITCHES = ("use_cpu", "no_cuda")
_ACCELERATOR = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
LIGHTNING = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "auto": "gpu"}
"""Lightning's accelerators; others (mps, tpu) have no CUDA context either, and are not known here."""


def accelerate_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Accelerator(mixed_precision=..., gradient_accumulation_steps=...)."""
    found: list[Binding] = []
    for record in records:
        if record.name not in _ACCELERATOR:
            continue
        mixed = record.argument("mixed_precision", 2)
        if mixed is not None and constant(mixed) is not None:
            found.append(bind("train.precision", spelled(mixed, PRECISIONS)))
        steps = record.argument("gradient_accumulation_steps", 3)
        found.append(bind("train.grad_accum", steps or Const(1), None if steps else Rank.default))
    return found


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
