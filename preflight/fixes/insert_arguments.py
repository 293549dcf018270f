"""Settings that a trainer's file of arguments, or its command, does not have yet: added under the trainer's own names.

A key goes behind the one that has the batch size, else behind the file's last one; a flag behind the line's last word.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.documents import cut
from preflight.documents.render import render
from preflight.frameworks.arguments import document_of
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Reading
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Route, Span, Value

_TRAINER: Mapping[str, str] = {
    "train.batch_size": "per_device_train_batch_size", "train.grad_accum": "gradient_accumulation_steps",
    "validation.batch_size": "per_device_eval_batch_size", "validation.eval_accumulation": "eval_accumulation_steps",
    "data.workers": "dataloader_num_workers", "data.prefetch": "dataloader_prefetch_factor",
    "data.persistent_workers": "dataloader_persistent_workers", "data.pin_memory": "dataloader_pin_memory",
}  # fmt: skip
_CHECKPOINTED: Mapping[str, str] = {**_TRAINER, "train.gradient_checkpointing": "gradient_checkpointing"}
KEYS: Mapping[str, Mapping[str, str]] = {
    "arguments": _CHECKPOINTED,
    "swift": _CHECKPOINTED,
    "llamafactory": _TRAINER,
    "axolotl": {
        "train.batch_size": "micro_batch_size", "train.grad_accum": "gradient_accumulation_steps",
        "train.gradient_checkpointing": "gradient_checkpointing", "validation.batch_size": "eval_batch_size",
        "data.workers": "dataloader_num_workers", "data.prefetch": "dataloader_prefetch_factor",
    },
    "torchtune": {
        "train.batch_size": "batch_size", "train.grad_accum": "gradient_accumulation_steps",
        "train.gradient_checkpointing": "enable_activation_checkpointing",
    },
}  # fmt: skip
"""Kind of file -> Job field -> the key that its trainer has for it."""


def inserted(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edit that states the field in the study's arguments; None where they are no trainer's that is known."""
    for reading in reversed(study.readings):
        key = KEYS.get(reading.dialect, {}).get(change.field)
        if key is None or change.value is None:
            continue
        if reading.path.endswith((".yaml", ".yml", ".json")):
            return _in_file(reading, key, change.value, project)
        return _on_line(reading, key, change.value, study)
    return None


def _in_file(reading: Reading, key: str, value: Value, project: Project) -> tuple[Edit, ...] | None:
    document = document_of(project.source(reading.path), project)
    if document.has((key,)):
        return None  # it is there, and means something that the reader did not take
    tops: list[Route] = [route[:1] for route in document.routes()]
    batch = next((b.origin for b in reading.bindings if b.field == "train.batch_size" and b.origin is not None), None)
    beside: Route | None = tops[-1] if tops else None
    if batch is not None and batch.path == reading.path and batch.route and len(batch.route) == 1:
        beside = batch.route
    return None if beside is None else (cut.insert(document, beside, key, value),)


def _on_line(reading: Reading, key: str, value: Value, study: Study) -> tuple[Edit, ...] | None:
    places: list[Origin] = []
    for word in study.links[-1].words if study.links else ():
        places += [one for one in (word.origin, word.value.origin if word.value is not None else None) if one]
    if not places or any(place.path != reading.path or not place.editable for place in places):
        return None
    end = max(place.span.end for place in places)
    text = render("", value, "bash")
    written = f"{key}={text}" if reading.dialect == "torchtune" else f"--{key} {text}"
    return (Edit(reading.path, Span(end, end), f" {written}"),)
