"""Which values a training step of the job's model computes over the whole micro-batch.

Layers with batch statistics (BatchNorm and its like), losses that compare or count over the samples of a micro-batch.
The knowledge is a table: preflight/vocabulary/batch_statistics.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from preflight.memory.device.law import catalogue
from preflight.memory.device.law.catalogue import read_config
from preflight.memory.device.resolve import target_of
from preflight.memory.device.workloads.detectors import Detector, config_of
from preflight.vocabulary.batch_statistics import Statistics, joined, of_architecture, of_target, table, type_of
from preflight.vocabulary.values import Cause, Unknown

if TYPE_CHECKING:
    from preflight.vocabulary.job import Job


def normalises(job: Job) -> Statistics:
    """Whether a layer of the job's model takes statistics of the micro-batch; Unknown where the model is not known."""
    found = joined([_of_part(job, *part) for part in parts(job)])
    return Unknown("which model is trained is not known", Cause.not_set, ("model.name",)) if found is None else found


def parts(job: Job) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(import target, architecture, config) of everything that the job says of its model."""
    model, config = job.model, dict(job.model.config or {})
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    if model.architecture:
        found.append(("", model.architecture, config))
    for name in (model.target, None if model.architecture else model.name):
        known = catalogue.find(name) if name else None
        if known is not None and known.target is None:
            found.append(("", known.architecture, {**known.config, **config}))
        elif name and (known is not None or target_of(name) or name == model.target):
            found.append(((known.target if known is not None else target_of(name)) or name, "", config))
        elif name:
            read = read_config(name) or {}
            found.append(("", str(read.get("model_type") or read.get("_class_name") or name), {**read, **config}))
    if model.path:
        read = read_config(model.path) or {}
        found.append(("", str(read.get("model_type") or read.get("_class_name") or model.path), {**read, **config}))
    return found


def _of_part(job: Job, target: str, architecture: str, config: Mapping[str, Any]) -> Statistics:
    if not target:
        return of_architecture(architecture, config, job.task or "")
    detector = Detector.target_of(target) is not None and not target.startswith("torchvision:")
    if detector and config_of(target) is not None:
        return False  # frozen, or in evaluation mode
    return of_target(target)


def compares(job: Job) -> bool:
    """Whether the model's own loss compares the samples of a micro-batch with each other."""
    if job.task not in (None, "other"):
        return job.task == "contrastive"
    return any(kind in table()["transformers"]["contrastive"] for kind in _kinds(job))


def counts_objects(job: Job) -> bool:
    """Whether the model's own loss is divided by the objects in the images of a micro-batch."""
    return any(
        type_of(architecture) in table()["transformers"]["per_object"]
        or (target and Detector.target_of(target) is not None)
        for target, architecture, _ in parts(job)
    )


def balances(job: Job) -> bool:
    """Whether experts are balanced by a loss over the tokens of a micro-batch, as far as the configuration says."""
    rows = table()["transformers"]["balancing"]
    for _, architecture, config in parts(job):
        kind = type_of(architecture) if architecture else None
        if kind in rows and config.get("output_router_logits", rows[kind]):
            return True
    return False


def has_experts(job: Job) -> bool:
    """Whether the model can balance its experts by a loss over the tokens of a micro-batch."""
    return any(kind in table()["transformers"]["balancing"] for kind in _kinds(job))


def _kinds(job: Job) -> list[str]:
    found = (type_of(architecture) for _, architecture, _ in parts(job) if architecture)
    return [kind for kind in found if kind is not None]
