"""What is certain where only a parameter count is known: the states it implies, and no verdict but "exceeds"."""

from __future__ import annotations

from preflight.job import Job
from preflight.memory.device import catalogue, denoisers, quantization
from preflight.memory.device.optimizers import step
from preflight.memory.device.parallel import kept, layouts
from preflight.memory.estimate import DeviceEstimate, Interval, Verdict
from preflight.values import Unknown


def _published(job: Job) -> int | None:
    """The least number of parameters that a model's published figure stands for; None where none is known."""
    model = catalogue.find(job.model.name) if job.model.name and not job.model.config else None
    found = catalogue.published(model) if model is not None else None
    return None if found is None else found[0] - found[1]


def _is_denoiser(job: Job) -> bool:
    """Whether frozen weights are cast to the 16 bits of mixed precision (denoisers.resolve)."""
    model = catalogue.find(job.model.name) if job.model.name else None
    return model is not None and denoisers.knows(model.architecture)


def lower_bound(job: Job, room: tuple[int | None, Interval], reason: Unknown) -> DeviceEstimate | Unknown:
    """The states that a parameter count implies: exceeds, or unknown; never fits. With adapters: the weights alone.

    `room`: capacity and context. `reason`: why there is no full estimate; returned where there is no bound either.
    """
    job = quantization.stated(job)
    # A field that is missing is asked for; a published count speaks where there is no law to ask.
    known = job.model.parameters or (_published(job) if reason.reason.startswith("no law ") else None)
    count, precision = known, job.train.precision
    found = layouts(job)
    if count is None or precision is None or isinstance(found, Unknown):
        return reason
    adapted = job.train.peft.method not in (None, "none")
    halved = precision in ("bf16", "fp16") or (adapted and _is_denoiser(job))
    size = 2 if "16" in (job.train.weights_dtype or (precision if halved else "")) else 4
    each = quantization.least(job.train.quantization, size)
    optimizer = step(job.train.optimizer or "sgd", job.train.optimizer_impl or "fused", [(count, size)])
    if optimizer is None:
        return reason
    weights, gradients, states_kept = kept(found.ranks[0])
    parts = {
        "weights": round(count * each * weights),
        "gradients": 0 if adapted else round(count * size * gradients),
        "optimizer": 0 if adapted else round(sum(optimizer.states) * states_kept),
    }
    capacity, context = room
    states = sum(parts.values())
    process = states + context.low
    exact = Interval(states, states, states)
    parts |= {"activations": 0, "logits": 0, "temporary": 0, "allocator": 0, "context": context.low}
    verdict: Verdict = "exceeds" if capacity is not None and process > capacity else "unknown"
    phase = "load" if adapted else "optimizer"
    return DeviceEstimate(
        exact, exact, exact, Interval(process, process, process), phase, "", parts, {phase: process}, None,
        capacity, verdict, None, True, (f"a lower bound: {reason.reason}",),
    )  # fmt: skip
