"""Why no value can be told: the fields that are missing, and what would fit for some of their values."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.engine.check import smallest
from preflight.engine.estimator import Estimator, largest_sample_bytes
from preflight.engine.fit.orders import BATCH, GPU, GPUS, LENGTH, NODE, WORKERS
from preflight.engine.fit.question import Question
from preflight.engine.what_if import frontier
from preflight.memory.device.positions import longest
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.fits import NEED, Answer, Row
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.words import assumed, gib

LARGER = 1.4
"""Each card of the table has so many times the memory of the one before."""
SAMPLE = "data.sample_bytes"
STRATEGY = "parallel.strategy"
STRATEGIES = ("none", "ddp", "zero2", "zero3")
"""From everything on each GPU to shards of everything."""
NUMBERS = (0, 1, 2, 4, 8, 16, 32)
"""Workers for which the largest sample is shown."""


def why_not(base: Answer, question: Question, found: Estimates) -> Answer:
    """The answer without a value. `found`: an estimate of the job that does not tell it."""
    if base.memory == "host":
        return _host(base, question, found)
    device, job = found.device, question.job
    missing = tuple(name for name in found.unknown if name != base.field and not name.startswith("data."))
    if device is None or (base.field == BATCH and job.get(LENGTH) is None and longest(job, LENGTH) is not None):
        rows = tuple(_by_length(job, question, base.field)) or tuple(_by_strategy(job, question, base.field))
        reason = found.reasons.get("device", "") if device is None else f"{LENGTH} is not known"
        return replace(base, reason=reason, missing=missing or (LENGTH,), frontier=rows)
    if device.lower_bound:
        need = f"at least {gib(device.process.expected)} is needed"
        reason = f"only a lower bound is known: {need}"
        return replace(base, reason=_with_assumptions(reason, device), missing=missing)
    if device.capacity is None:
        rows = tuple(_by_card(question)) if base.field == BATCH else ()
        return replace(base, reason="no GPU is stated", missing=(GPU, *missing), frontier=rows)
    return replace(base, reason=_with_assumptions("it cannot be told", device), missing=missing)


def _with_assumptions(reason: str, device: DeviceEstimate) -> str:
    return f"{reason}, with {assumed(device.assumptions)}" if device.assumptions else reason


def _by_length(job: Job, question: Question, solved: str) -> Iterator[Row]:
    """The largest batch for each length, or the need where no GPU is stated."""
    certainty = question.certainty(solved, BATCH, LENGTH)
    open_job = possible(job, {solved: None}) if solved in (BATCH, LENGTH) else job
    for row in frontier(open_job or job, certainty.estimate):
        length = {LENGTH: row.length} if row.length is not None else {}
        if row.largest_batch is not None:
            yield {**length, BATCH: row.largest_batch}
            continue
        for batch, need in row.needs:
            if not need.lower_bound:
                yield {**length, BATCH: batch, NEED: need.process.expected}


def _by_strategy(job: Job, question: Question, solved: str) -> Iterator[Row]:
    """The largest batch for each way to share the model, on the GPUs of one node, where the file that says it was not
    read."""
    stated = job.parallel
    if stated.strategy is not None and stated.ranks_per_node is not None:
        return
    node = max(stated.gpus_per_node or 1, stated.ranks_per_node or 1)
    node = node if node > 1 else NODE  # one GPU shares nothing, and is the default that nobody stated
    for strategy in STRATEGIES if stated.strategy is None else (stated.strategy,):
        gpus = 1 if strategy == "none" else node
        values = {STRATEGY: strategy, "parallel.nodes": stated.nodes or 1, GPUS: gpus, "parallel.ranks_per_node": gpus}
        one = possible(job, values)
        if one is None:
            continue
        row: Row = {STRATEGY: strategy, GPUS: gpus}
        yield from ({**row, **rest} for rest in _sizes_of(one, question.solving(*values), solved))


def _sizes_of(job: Job, question: Question, solved: str) -> Iterator[Row]:
    """The largest batch of a job, or one for each length."""
    if job.train.seq_len is None or job.train.batch_size is None:
        yield from _by_length(job, question, solved)
        return
    device = question.certainty(BATCH).estimate(job).device
    if device is not None and device.largest_batch_size is not None:
        yield {BATCH: device.largest_batch_size}


def _by_card(question: Question) -> Iterator[Row]:
    """The largest batch on cards of each size, from the smallest that holds one sample."""
    one = possible(question.job, {BATCH: 1})
    bare = Estimator(None, question.estimator.tracing).full(one).device if one is not None else None
    for gpu in _sizes(bare, one) if bare is not None and one is not None else ():
        job = possible(question.job, {GPU: gpu.name, BATCH: question.job.train.batch_size or 1})
        device = question.certainty(GPU, BATCH, gpu=gpu).estimate(job).device if job is not None else None
        if device is not None and device.largest_batch_size is not None:
            yield {GPU: gpu.name, BATCH: device.largest_batch_size}


def _sizes(device: DeviceEstimate, job: Job) -> Iterator[Gpu]:
    from preflight.machines.gpus import that_fit

    first, last = smallest(device, job), 0.0
    for gpu in that_fit(first.capacity, job) if first is not None else ():
        if gpu.capacity >= last * LARGER:
            last = gpu.capacity
            yield gpu


def _host(base: Answer, question: Question, found: Estimates) -> Answer:
    """Why a field of the host cannot be told: the limit or the size of a sample is not known."""
    job, host = question.job, found.host
    if host is not None and host.limit is None:
        reason = "the memory of the node is not stated"
        return replace(base, reason=reason, missing=("machine.node_memory",))
    missing = tuple(name for name in found.unknown if name != base.field and name.startswith(("data.", "machine.")))
    rows = tuple(_by_sample(job, question, base.field)) if SAMPLE in missing else ()
    return replace(base, reason=found.reasons.get("host", ""), missing=missing, frontier=rows)


def _by_sample(job: Job, question: Question, field: str) -> Iterator[Row]:
    """The largest decoded sample with which each number of workers fits."""
    if field != WORKERS:
        return
    for workers in NUMBERS:
        one = possible(job, {WORKERS: workers})
        most = largest_sample_bytes(one, question.estimator.tracing) if one is not None else None
        if most is not None:
            yield {WORKERS: workers, SAMPLE: most}
