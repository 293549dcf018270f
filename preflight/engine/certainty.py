"""Whether a lower bound is certain: whether its settings were read, or assumed because no file states them.

A bound ("at least 100 GiB") is the states of the whole model. It is as certain as its sharding, its precision, and the
set of trained parameters: a launch that no file shows may shard the states over a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.study import Bound, Source, Study
from preflight.vocabulary.values import Unknown, evaluate, names

Estimate = Callable[[Job], Estimates]

OWN_LAYOUT = ("hand-written", "lightning", "ultralytics")
"""Frameworks whose programs say themselves how a model is sharded; with the others the launch may say it."""

CONFIGURING = ("accelerate", "deepspeed")
"""Launchers that take the sharding from a file of theirs, accelerate from one in the user's home if none is named."""

RESTS = ("train.peft.method", "train.quantization.type", "train.frozen", "parallel.offload")
"""Settings whose absence means "no", and with which the states may be much smaller."""

AUTO_DTYPE = (5,)
"""From this release on transformers loads a checkpoint in the type that it was saved in (migration guide of v5,
`dtype="auto"`); before it, in fp32."""


def as_read(study: Study, estimate: Estimate) -> Estimate:
    """`estimate`, whose lower bounds give "exceeds" only if none of their settings was assumed."""
    doubt = _doubt(study)
    guessed = any(_by_default(box.fields, "train.precision") for box in study.boxes)

    def certain(job: Job) -> Estimates:
        found = estimate(job)
        device = found.device
        if device is None or not device.lower_bound or device.verdict != "exceeds":
            return found
        if doubt:
            return replace(found, device=_unsure(device, doubt))
        if guessed and _may_load_in_half(job):
            train = job.train.model_copy(update={"precision": "bf16"})
            half = estimate(job.model_copy(update={"train": train})).device
            if half is None or half.verdict != "exceeds":
                why = "the precision of the loaded weights is not stated, and in bf16 they may fit"
                return replace(found, device=_unsure(device, why))
        return found

    return certain


def _unsure(device: DeviceEstimate, why: str) -> DeviceEstimate:
    return replace(device, verdict="unknown", notes=(*device.notes, f"not certain: {why}"))


def _doubt(study: Study) -> str:
    """The settings of the states that were not read, in words; empty if all were read."""
    for box in study.boxes:
        for name in RESTS:
            bound = box.fields.get(name)
            if bound is not None and not any(names(bound.expr)) and isinstance(evaluate(bound.expr), Unknown):
                return f"{name} is not known"
        if _by_default(box.fields, "parallel.strategy") and not _launch_read(study):
            return "no file that was read says how the model is sharded"
    return ""


def _launch_read(study: Study) -> bool:
    """Whether the launch of the program was read, or cannot change how its model is sharded."""
    framework = study.facts.get("framework")
    if study.program is not None and framework is not None and framework.value in OWN_LAYOUT:
        return True
    return bool(study.links) and study.launch.launcher not in CONFIGURING


def _by_default(fields: Mapping[str, Bound], name: str) -> bool:
    """Whether the field has the table's default, since nothing that was read speaks of it."""
    bound = fields.get(name)
    return bound is not None and bound.default and bound.source is Source.preflight


def _may_load_in_half(job: Job) -> bool:
    stated = job.software.get("transformers")
    return (
        job.model.load == "from-pretrained"
        and job.train.weights_dtype is None
        and (stated is None or (release(stated) or NEWEST) >= AUTO_DTYPE)
    )
