"""Training on the processor: the host memory of the model, its gradients, its optimizer and its activations.

A model with a law takes the tensors of its law: the same storages are on the host, without blocks of CUDA's allocator.
For a model of the program's own layers, its parameters and `model.activation_bytes` say them.
"""

from __future__ import annotations

from msgspec import Struct

from preflight.memory.device.estimate import tensors_on_processor
from preflight.memory.host import constants as c
from preflight.memory.host.checkpoint import Weights
from preflight.vocabulary.job import Job
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Cause, Unknown

ACTIVATIONS = "model.activation_bytes"


class Trained(Struct, frozen=True):
    """What one process holds of training, in bytes."""

    states: int = 0
    """Weights, gradients and states of the optimizer."""
    activations: int = 0
    """What forward and backward add for a moment."""


UNTRAINED = Trained()


def trained_here(job: Job, weights: Weights | None, tracing: Tracing) -> Trained | Unknown:
    """What a training on the processor takes beside its loaders, or what is not known of it."""
    found = tensors_on_processor(job, tracing) if _has_law(job) else None
    if found is not None and not isinstance(found, Unknown):
        return Trained(*found)
    activations, count = job.model.activation_bytes, job.model.parameters
    if activations is None or count is None or weights is None:
        missing = tuple(
            name for name, value in (("model.parameters", count), (ACTIVATIONS, activations)) if value is None
        )
        return Unknown(
            "the memory of a model that is trained on the processor is not known", Cause.not_modelled, missing
        )
    return Trained(states_of(job, weights), activations * (job.train.batch_size or 1))


def least_of(job: Job, weights: Weights | None) -> Trained:
    """What is certain where the activations are not known."""
    return UNTRAINED if weights is None else Trained(states_of(job, weights))


def states_of(job: Job, weights: Weights) -> int:
    """Bytes of weights, gradients and optimizer states on the CPU; with adapters, of the frozen weights alone."""
    states = 0.0 if job.train.peft.method is not None else 1 + c.OPTIMIZER_COPIES.get(job.train.optimizer or "", 2)
    return round(weights.bytes * (1 + states))


def _has_law(job: Job) -> bool:
    return any(getattr(job.model, name) is not None for name in ("name", "architecture", "path", "target", "law"))
