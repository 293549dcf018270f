"""Lower bound where only a parameter count is known: the bytes of weights, gradients and optimizer states.

The verdict is "exceeds" or "unknown", never "fits".
"""

from __future__ import annotations

from preflight.memory.device.law import catalogue, quantization
from preflight.memory.device.law.workload import WorkloadRequest
from preflight.memory.device.optimizers import step
from preflight.memory.device.parallel import kept, layouts
from preflight.memory.device.parallel.group import cuts_weights, parts_not_known
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.zero import MASTER
from preflight.memory.device.workloads.registry import kind_of
from preflight.vocabulary.estimates import DeviceEstimate, Interval, Verdict
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

LEAST = "bf16"
"""The precision with the smallest weights, gradients and optimizer states (fp16's are as large)."""


def _published(job: Job) -> int | None:
    """The smallest number of parameters that rounds to a model's published figure; None where none is known."""
    model = catalogue.find(job.model.name) if job.model.name and not job.model.config else None
    found = catalogue.published(model) if model is not None else None
    return None if found is None else found[0] - found[1]


def _casts_frozen(job: Job) -> bool:
    """Whether frozen weights are cast to the 16 bits of mixed precision."""
    model = catalogue.find(job.model.name) if job.model.name else None
    if model is None:
        return False
    return kind_of(WorkloadRequest(job, model.name, model.architecture, model.config, model.target)).casts_frozen


def lower_bound(job: Job, room: tuple[int | None, Interval], reason: Unknown) -> DeviceEstimate | Unknown:
    """The states that a parameter count implies: exceeds, or unknown; never fits. With adapters: the weights alone.

    `room`: capacity and context. `reason`: why there is no full estimate; returned where there is no bound either.
    """
    job = quantization.stated(job)
    found = layouts(job)
    if isinstance(found, Unknown):
        return reason
    if job.train.peft.method not in (None, "none") and cuts_weights(found.ranks[0]) and _casts_frozen(job):
        return parts_not_known(found.ranks[0])
    asked = reason.cause is Cause.not_set and any(name.startswith(("train.", "validation.")) for name in reason.fields)
    without_law = reason.cause in (Cause.no_law, Cause.cannot_trace) and job.model.law is None
    # A published count is used where there is no law, and where no value of a missing setting could make the job fit.
    known = job.model.parameters or job.model.least_parameters
    count = known or (_published(job) if asked or without_law else None)
    if count is None:
        return reason
    bound = _bound(job, found.ranks[0], count, room, reason)
    if isinstance(bound, Unknown) or bound.verdict == "exceeds":
        return bound
    # Where the states would fit, the missing field is reported instead.
    return bound if job.train.precision is not None and (known or not asked) else reason


def _bound(
    job: Job, layout: ShardLayout, count: int, room: tuple[int | None, Interval], reason: Unknown
) -> DeviceEstimate | Unknown:
    """`count` parameters on one rank. Where the precision is not stated, the one with the smallest states is taken."""
    precision = job.train.precision or LEAST
    adapted = job.train.peft.method not in (None, "none") or bool(job.train.frozen)
    halved = precision in ("bf16", "fp16") or (adapted and _casts_frozen(job))
    size = 2 if "16" in (job.train.weights_dtype or (precision if halved else "")) else 4
    updated = size
    if layout.scheme.startswith("zero") and "16" in precision:  # DeepSpeed's engine casts the model, and updates a copy
        size, updated = 2, MASTER if size == MASTER else size
    each = quantization.least(job.train.quantization, size)
    optimizer = step(job.train.optimizer or "sgd", job.train.optimizer_impl or "fused", [(count, updated)])
    copied = count * MASTER if updated > size else 0
    weights, gradients, states_kept = kept(layout)
    # An optimizer that is not known may step during the backward pass, and keep neither gradients nor states.
    alone = adapted or optimizer is None
    parts = {
        "weights": round(count * each * weights),
        "gradients": 0 if alone or job.train.optimizer_in_backward else round(count * size * gradients),
        "optimizer": 0 if adapted or optimizer is None else round((sum(optimizer.states) + copied) * states_kept),
    }
    whole = round(count * each / (layout.tensor * layout.pipeline))
    cut_late = layout.cut_late and whole > sum(parts.values())
    if cut_late:
        parts = {"weights": whole, "gradients": 0, "optimizer": 0}
    capacity, context = room
    states = sum(parts.values())
    process = states + context.low
    exact = Interval(states, states, states)
    parts |= {"activations": 0, "logits": 0, "temporary": 0, "allocator": 0, "context": context.low}
    verdict: Verdict = "exceeds" if capacity is not None and process > capacity else "unknown"
    phase = "load" if alone or cut_late else "optimizer"
    return DeviceEstimate(
        requested=exact,
        allocated=exact,
        reserved=exact,
        process=Interval(process, process, process),
        phase=phase,
        where="",
        breakdown=parts,
        phases={phase: process},
        largest_allocation=None,
        capacity=capacity,
        verdict=verdict,
        lower_bound=True,
        cannot_trace=reason if reason.cause is Cause.cannot_trace else None,
        notes=(f"a lower bound: {reason.words}",),
    )
