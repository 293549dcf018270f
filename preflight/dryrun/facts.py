"""The Job fields that a dry run saw, and the estimate from its tape with what is assumed in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from preflight.dryrun.command import StartedProgram
from preflight.dryrun.report_of_process import RunReport, recording
from preflight.engine.estimator import Estimator
from preflight.memory.device import recorded
from preflight.vocabulary.estimates import Estimates, HostEstimate, StepMoment
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.notation import allocator_settings
from preflight.vocabulary.spelling import OPTIMIZERS
from preflight.vocabulary.standing import Assumption, Standing

_AUTOCAST = {"torch.float16": "fp16-mixed", "torch.bfloat16": "bf16-mixed"}
_SHARDED = ("fsdp", "zero1", "zero2", "zero3")
UNEVEN = 0.02
"""Part by which two steps may differ: some buffers are made in the first alone."""
MOST_STEPS = 8


class DryRunEstimate(Struct, frozen=True):
    """The estimate of a dry run, and how it is known."""

    job: Job
    estimates: Estimates
    standings: Mapping[str, Standing]
    moments: tuple[StepMoment, ...]
    stated: tuple[str, ...]
    """What was assumed, in sentences."""


def estimated(report: RunReport, program: StartedProgram, gpu: Gpu | None, directory: str) -> DryRunEstimate:
    """The memory of the program, from its tape."""
    values = seen(report, program)
    if gpu is not None:
        values["machine.gpu"] = gpu.name
    job = build(values)
    tape = recording(report, directory)
    device = recorded.estimate(tape, job, gpu)
    whole = report.trained or (report.end in ("ended", "exited") and all(report.steps))
    whole = whole and report.facts.get("sizes_made_up") is not True
    doubts = tuple(_doubts(report))
    device = recorded.judged(device, whole, doubts)
    host = Estimator(gpu).full_host(job)
    known, why = (host, {}) if isinstance(host, HostEstimate) else (None, {"host": host})
    found = Estimates(device, known, (), why)
    standings = {name: Standing.dry_run for name in values if name != "machine.gpu"}
    stated = (*program.assumptions, *(text for text, _ in report.assumptions))
    return DryRunEstimate(job, found, standings, recorded.timeline(tape, job, gpu), stated)


def seen(report: RunReport, program: StartedProgram) -> dict[str, object]:
    """The Job fields that a dry run saw."""
    return dict(_values(report, program))


def _values(report: RunReport, program: StartedProgram) -> Iterator[tuple[str, object]]:
    facts = report.facts
    for loader in _dictionaries(facts.get("loaders")):
        size = loader.get("batch_size")
        name = "train" if loader.get("trains") else "validation"
        if isinstance(size, int) and size > 0:
            yield f"{name}.batch_size", size
        if loader.get("trains") and isinstance(loader.get("workers"), int):
            yield "data.workers", loader["workers"]
        length, sample = loader.get("length"), loader.get("sample_bytes")
        if loader.get("trains") and isinstance(length, int) and length > 0:
            yield "train.seq_len", length
        if loader.get("trains") and isinstance(sample, int) and sample > 0 and facts.get("data_made_up") is not True:
            yield "data.sample_bytes", sample
    optimizers = list(_dictionaries(facts.get("optimizers")))
    if optimizers:
        name = str(optimizers[0].get("name", "")).lower()
        yield "train.optimizer", OPTIMIZERS.get(name, "other")
        if optimizers[0].get("fused"):
            yield "train.optimizer_impl", "fused"
    autocast = [_AUTOCAST[one] for one in facts.get("autocast", ()) if one in _AUTOCAST]
    if autocast:
        yield "train.precision", autocast[0]
    accumulated = _accumulation(report)
    if accumulated is not None:
        yield "train.grad_accum", accumulated
    if facts.get("compiled") is True:
        yield "train.compile", True
    if report.benchmark and report.convolutions:
        yield "train.cudnn_benchmark", True
    models = [one.get("parameters") for one in _dictionaries(facts.get("models"))]
    counts = [one for one in models if isinstance(one, int) and one > 0]
    if counts:
        yield "model.parameters", max(counts)
    if program.world_size > 1:
        strategy = facts.get("strategy")
        yield "parallel.strategy", strategy if strategy in _SHARDED else "ddp"
        yield "parallel.nodes", program.nodes
        yield "parallel.ranks_per_node", program.ranks_per_node
    if report.versions:
        yield "software", dict(report.versions)
    yield from allocator_settings(report.allocator)


def _dictionaries(value: Any) -> Iterator[Mapping[str, Any]]:
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            yield one


def _accumulation(report: RunReport) -> int | None:
    """Backward passes between the first two steps of the one optimizer."""
    if len(report.steps) != 1 or len(report.backwards) < 2:
        return None
    count = report.backwards[1] - report.backwards[0]
    return count if count > 0 else None


def _is_uneven(report: RunReport) -> bool:
    """Whether two steps of the program differ in what its modules allocate in forward: its batches differ in size."""
    ends = [at for at, name in report.marks if name == "stepped"]
    sizes = []
    for start, end in pairwise([0, *ends]):
        places = [(at, report.places[at]) for at in range(start, min(end, len(report.events)))]
        inner = [at for at, place in places if place.phase == "forward" and place.module]
        sizes.append(sum(max(0, report.events[at]) for at in inner))
    sizes = [size for size in sizes[:MOST_STEPS] if size]
    return len(report.steps) == 1 and bool(sizes) and max(sizes) > (1 + UNEVEN) * min(sizes)


def _doubts(report: RunReport) -> Iterator[Assumption]:
    """What the verdict depends on and the dry run did not see."""
    by_field: dict[str, list[str]] = {}
    for text, field in report.assumptions:
        if field:
            by_field.setdefault(field, []).append(text)
    for field, texts in by_field.items():
        yield Assumption(field, None, Standing.assumed, "; ".join(texts))
    if _is_uneven(report):
        why = "the steps that were seen differ in size: a batch that takes more may come later"
        yield Assumption("train.seq_len", None, Standing.assumed, why)
    if report.trained and not report.validated and report.end != "ended":
        why = "the dry run ended before any validation: none may take more than a training step"
        yield Assumption("validation.batch_size", None, Standing.unknown, why)
