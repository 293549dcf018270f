"""Solves for the value of one Job field with which a job fits.

No formula of memory stands here. The largest batch is that of the estimate; every other value is found by bisection
over the same estimates that `check` and `estimate` use, and the fixes of `check` (`fixes.what_if.largest`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from preflight.engine.certainty import Certainty
from preflight.engine.check import Analysis, CheckSetup, smallest
from preflight.engine.fit.orders import (
    ACCUMULATION,
    BATCH,
    GPU,
    GPUS,
    NODE,
    ORDERS,
    SHARDED,
    WORKERS,
    Order,
    usual_fields,
)
from preflight.engine.fit.question import Question, fitting
from preflight.engine.fit.unknown import why_not
from preflight.fixes.what_if import divisors, largest
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.fits import Answer, FitOf, Memory
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.values import Value, frozen

ROUNDS = 6
"""How often a search is solved again with the combination in which an answer does not fit."""
CARDS = 6
"""How many cards are estimated, from the one on whose memory the need fits."""
MOST_NODES = 128


def solve(field: str, question: Question) -> Answer:
    """The answer for a field. Of a search, one that holds in every combination of its box."""
    asked = question
    for _ in range(ROUNDS):
        answer = replace(_solve(field, asked), stated=question.job.get(field))
        if answer.value is None or not question.several:
            return answer
        values = _changes(field, answer)
        gpu = find_gpu(str(answer.value)) if field == GPU else None
        worst = question.worst_with(values, question.certainty(*values, gpu=gpu))
        if fitting(worst.estimates, answer.memory):
            return replace(answer, job=worst.job, estimates=worst.estimates)
        asked = question.of(worst.job)
    return replace(
        answer, value=None, job=None, estimates=None,
        reason="the combinations of the search differ too much: no value was found that fits in all of them",
    )  # fmt: skip


def _solve(field: str, question: Question) -> Answer:
    solver = {BATCH: _batch, GPU: _card, GPUS: _gpus, ACCUMULATION: _accumulation}.get(field)
    return solver(question) if solver is not None else _bisected(field, question)


TOGETHER = {
    ACCUMULATION: (ACCUMULATION, BATCH),
    GPUS: ("parallel.nodes", GPUS, "parallel.ranks_per_node"),
    GPU: (GPU, "machine.gpu_memory"),
}
"""Fields that an answer sets together."""


def _changes(field: str, answer: Answer) -> dict[str, Value]:
    """The Job fields that an answer sets, with their values."""
    job = answer.job
    return {name: frozen(job.get(name)) for name in TOGETHER.get(field, (field,))} if job is not None else {}


# --- the batch, by the law ------------------------------------------------------------------------------------------


def _batch(question: Question) -> Answer:
    """The largest batch of the estimate: the number that `estimate` and the findings of `check` name."""
    order, certainty = ORDERS[BATCH], question.certainty(BATCH)
    base = Answer(BATCH, order.title, order.kind)
    stated = question.job if question.job.train.batch_size is not None else possible(question.job, {BATCH: 1})
    found = certainty.estimate(stated) if stated is not None else Estimates(None, None)
    most = found.device.largest_batch_size if found.device is not None else None
    reach = question.estimator.reach(BATCH)
    if most is None and reach is not None:
        furthest = possible(question.job, {BATCH: reach[1]})
        if furthest is not None and fitting(certainty.estimate(furthest), "device"):
            return replace(_at(base, reach[1], furthest, certainty), limit=_REACHED)
    if most is None:
        return why_not(base, question, found)
    if most == 0:
        return _at(base, None, possible(question.job, {BATCH: 1}), certainty)
    return _at(base, most, possible(question.job, {BATCH: most}), certainty)


def _at(base: Answer, value: int | str | None, job: Job | None, certainty: Certainty) -> Answer:
    """The answer with the estimate of its job; where no value fits, of the job that needs least."""
    return replace(base, value=value, job=job, estimates=certainty.estimate(job) if job is not None else None)


# --- a field by bisection -------------------------------------------------------------------------------------------


def _bisected(field: str, question: Question) -> Answer:
    order, certainty = ORDERS[field], question.certainty(field)
    base = Answer(field, order.title, order.kind, order.memory)
    values, limit = _candidates(field, order, question)
    jobs: dict[int, Job | None] = {}

    def job_with(value: int) -> Job | None:
        if value not in jobs:
            jobs[value] = possible(question.job, {field: value})
        return jobs[value]

    least = job_with(values[0])
    first = certainty.estimate(least) if least is not None else Estimates(None, None)
    side = first.device if order.memory == "device" else first.host
    if side is None or _says_nothing(side.verdict, first, order):
        return why_not(base, question, first)
    if not limit and _same_need(first, least, job_with(values[-1]), certainty, order):
        return replace(base, reason=f"the {_MEMORY[order.memory]} memory of this job does not depend on it")

    def good(value: int) -> bool:
        job = job_with(value)
        return job is not None and _may_fit(job, certainty, order.memory)

    def likely(value: int) -> bool | None:
        job = job_with(value)
        return False if job is None else certainty.estimator.may_fit(job)

    if order.memory == "device":  # beyond the first value that certainly does not fit, none does
        end = bisect_left(values, True, key=lambda value: likely(value) is False)
        value = largest(values[:end], good, likely)
    else:
        value = largest(values, good)
    if value is None:
        return _at(base, None, least, certainty)
    answer = _at(base, value, job_with(value), certainty)
    if value == values[-1]:
        return replace(answer, open_ended=not limit, limit=limit)
    following = job_with(values[values.index(value) + 1])
    after = certainty.estimator.full(following) if following is not None else Estimates(None, None)
    return replace(answer, limit=after.reasons.get(order.memory, ""))


_MEMORY = {"device": "GPU", "host": "host"}


def _may_fit(job: Job, certainty: Certainty, memory: Memory) -> bool:
    """Whether a job fits as it is estimated. What that stands on is asked of the answer alone: it only makes "fits" to
    "fits if"."""
    return fitting(certainty.estimator.full(job), memory)


def _same_need(first: Estimates, least: Job | None, job: Job | None, certainty: Certainty, order: Order) -> bool:
    """Whether the largest value needs exactly what the smallest one does: the field is none that this job has."""
    if order.memory == "device":
        return least is not None and job is not None and _same_bound(least, job, certainty)
    last = certainty.estimate(job) if job is not None else Estimates(None, None)
    return first.host is not None and last.host is not None and first.host.per_node == last.host.per_node


def _same_bound(one: Job, other: Job, certainty: Certainty) -> bool:
    """Whether two jobs have the same bound; it grows with every field that the memory depends on."""
    found = [certainty.estimator.device_bound(job) for job in (one, other)]
    return None not in found and found[0] == found[1]


def _says_nothing(verdict: str, found: Estimates, order: Order) -> bool:
    device = found.device
    return verdict == "unknown" or (order.memory == "device" and device is not None and device.lower_bound)


_REACHED = "the law of its dry run reaches no further"


def _candidates(field: str, order: Order, question: Question) -> tuple[Sequence[int], str]:
    """The values to try, and what ends them if that is not the memory."""
    job, reach = question.job, question.estimator.reach(field)
    if reach is not None:
        within = [value for value in order.values if reach[0] <= value <= reach[1]]
        return (within, _REACHED) if within else (order.values, "")
    cpus = job.machine.cpus
    if field == WORKERS and cpus is not None:
        own = max(1, cpus // (job.parallel.ranks_per_node or 1))
        if own < order.values[-1]:
            return order.values[: own + 1], f"the job has {own} CPUs for each rank"
    return order.values, ""


# --- accumulation, with the effective batch kept --------------------------------------------------------------------


def _accumulation(question: Question) -> Answer:
    """The fewest steps with which the micro-batch fits and the effective batch stays what it is."""
    order, job = ORDERS[ACCUMULATION], question.job
    base = Answer(ACCUMULATION, order.title, order.kind)
    batch, steps = job.train.batch_size, job.train.grad_accum
    if batch is None or steps is None:
        return why_not(base, question, question.certainty().estimate(job))
    total, certainty = batch * steps, question.certainty(*TOGETHER[ACCUMULATION])
    sizes = [*divisors(total), total]

    def job_with(size: int) -> Job | None:
        return possible(job, {BATCH: size, ACCUMULATION: total // size})

    def good(size: int) -> bool:
        one = job_with(size)
        return one is not None and _may_fit(one, certainty, "device")

    def likely(size: int) -> bool | None:
        one = job_with(size)
        return False if one is None else certainty.estimator.may_fit(one)

    least = job_with(sizes[0])
    first = certainty.estimate(least) if least is not None else Estimates(None, None)
    if first.device is None or first.device.verdict == "unknown":
        return why_not(base, question, first)
    size = largest(sizes, good, likely)
    if size is None:
        return _at(base, None, least, certainty)
    return _at(base, total // size, job_with(size), certainty)


# --- cards, and how many of them ------------------------------------------------------------------------------------


def _card(question: Question) -> Answer:
    """The smallest card of the catalogue that holds the job: the one that `check` and `estimate` name where no GPU is
    stated, or the next larger one if the estimate on that card does not fit."""
    order = ORDERS[GPU]
    base = Answer(GPU, order.title, order.kind)
    bare = possible(question.job, {GPU: None, "machine.gpu_memory": None})
    if bare is None:
        return replace(base, reason="the job cannot be stated without its GPU")
    nowhere = Certainty(question.held, question.estimator.on(None)).estimate(bare)
    if nowhere.device is None or nowhere.device.lower_bound:
        return why_not(base, question, nowhere)
    for gpu in cards(nowhere.device, bare):
        job = possible(bare, {GPU: gpu.name})
        found = question.certainty(GPU, gpu=gpu).estimate(job) if job is not None else None
        if fitting(found, "device"):
            return replace(base, value=gpu.name, job=job, estimates=found)
        if found is not None and found.device is not None and found.device.verdict == "unknown":
            return why_not(base, question, found)
    return replace(base, job=bare, estimates=nowhere)


def cards(device: DeviceEstimate, job: Job) -> Iterator[Gpu]:
    """Cards whose memory is above the need, and that can compute the job, the smallest first."""
    from preflight.machines.gpus import that_fit

    first = smallest(device, job)
    if first is None:
        return
    for number, gpu in enumerate(that_fit(first.capacity, job)):
        if number >= CARDS:
            return
        yield gpu


def _gpus(question: Question) -> Answer:
    """The fewest GPUs over which the shards of a job fit, each GPU being the job's own."""
    order, job = ORDERS[GPUS], question.job
    base = Answer(GPUS, order.title, order.kind)
    if job.parallel.strategy not in SHARDED:
        return replace(base, reason="the states of the model are not sharded: each GPU holds all of them")
    certainty = question.certainty(*TOGETHER[GPUS])
    last = None
    for values in _layouts(job):
        one = possible(job, values)
        found = certainty.estimate(one) if one is not None else None
        if found is None or found.device is None or found.device.verdict == "unknown" or found.device.lower_bound:
            return why_not(base, question, found or Estimates(None, None))
        if found.device.fitting:
            total = values["parallel.nodes"] * values[GPUS]
            return replace(base, value=total, job=one, estimates=found)
        last = replace(base, job=one, estimates=found)
    return last or base


def _layouts(job: Job) -> Iterator[Mapping[str, int]]:
    """Numbers of GPUs, ascending: of one node, then of more nodes."""
    together = (job.parallel.tensor or 1) * (job.parallel.pipeline or 1)
    node = max(NODE, job.parallel.gpus_per_node or 1)
    for gpus in (n for n in range(1, node + 1) if node % n == 0 and n % together == 0):
        yield {"parallel.nodes": 1, GPUS: gpus, "parallel.ranks_per_node": gpus}
    nodes = 2
    while nodes <= MOST_NODES:
        yield {"parallel.nodes": nodes, GPUS: node, "parallel.ranks_per_node": node}
        nodes *= 2


# --- for a job, and for every part of the search of a study ----------------------------------------------------------


def of_job(question: Question, fields: Sequence[str], gpu: str) -> FitOf:
    """The answers for a job; for the usual fields if none are named."""
    named = fields or usual_fields(question.job)
    return FitOf(question.job, gpu, tuple(solve(field, question) for field in named), {}, {})


def of_study(result: StudyResult, found: Analysis, asked: CheckSetup, fields: Sequence[str]) -> tuple[FitOf, ...]:
    """The answers for each part of a study: a single job, or a box of a search with its worst combination."""
    estimator = asked.estimator_of(result)
    parts = []
    for verdict in result.space.boxes:
        box, job = verdict.box, verdict.worst.job
        constraints = found.project.settings.constraints
        question = Question(job, estimator, result.held, result.study, box, constraints)
        asked.progress.check()
        answers = tuple(solve(field, question) for field in fields or usual_fields(job))
        gpu = result.gpu.name if result.gpu is not None else ""
        worst: dict[str, Value] = dict(verdict.worst.assignment) if box.memory_axes else {}
        parts.append(FitOf(job, gpu, answers, box.fixed, worst))
    return tuple(parts)


def decisive(parts: Sequence[FitOf], field: str) -> Answer | None:
    """The answer for a field that holds in every part; None if one part has none."""
    found = [answer for part in parts for answer in part.answers if answer.field == field]
    values = [answer.value for answer in found]
    if not found or any(not isinstance(value, int) for value in values):
        return None
    largest = ORDERS[field].kind == "largest"
    pick = min if largest else max
    return pick(found, key=lambda answer: answer.value if isinstance(answer.value, int) else 0)
