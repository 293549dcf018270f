"""Batches that files state, against micro-batch x accumulation x ranks."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.reading import Reading
from preflight.vocabulary.records import dataclass
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const, Origin, evaluate
from preflight_rules.common import worst_box

STATED = ("effective_batch_size", "total_batch_size", "global_batch_size")
"""Settings that people give the product of micro-batch, accumulation and ranks."""

TRAINERS = ("transformers-trainer", "trl")
"""Frameworks that hand their own arguments to DeepSpeed and refuse a file that says otherwise."""

PAIRS = (("train_micro_batch_size_per_gpu", "train.batch_size"), ("gradient_accumulation_steps", "train.grad_accum"))
"""DeepSpeed's names for two Job fields."""


@dataclass(frozen=True)
class Mismatch:
    """One number that does not agree; `refused`: the run ends at its start."""

    message: str
    origin: Origin
    refused: bool


def mismatches(case: Case) -> Iterator[Mismatch]:
    """Every stated batch of a study that is not what its other settings make it."""
    for reading in case.study.readings:
        if reading.dialect == "deepspeed":
            yield from _deepspeed(case, reading)
    yield from _effective(case)


def ranks_of(case: Case) -> int | None:
    """Ranks of the whole launch, None where nothing says how many processes there are."""
    bound = case.bound("parallel.ranks_per_node")
    nodes, ranks = case.job.parallel.nodes, case.job.parallel.ranks_per_node
    return None if bound is None or bound.default or nodes is None or ranks is None else nodes * ranks


def _deepspeed(case: Case, reading: Reading) -> Iterator[Mismatch]:
    own = {binding.field: binding.expr for binding in reading.bindings if isinstance(binding.expr, Const)}
    factors = []
    for key, field in PAIRS:
        theirs, origin, said = case.job.get(field), case.origin(field), own.get(field)
        value = said.value if said is not None else None
        if said is None or said.origin is None or not _whole(value):  # "auto", or left to the trainer
            factors.append(theirs)
            continue
        factors.append(value)
        outside = origin is not None and origin.path != reading.path
        if outside and case.fact("framework") in TRAINERS and _whole(theirs) and theirs != value:
            message = f"{key} is {value}, and the trainer's own arguments say {theirs}: the two must agree"
            yield Mismatch(message, said.origin, True)
            return
    batch = next((fact for fact in reading.facts if fact.name == "stated_batch"), None)
    stated, place = (batch.value, batch.origin) if batch is not None else (None, None)
    micro, accumulation = factors
    if isinstance(stated, int) and place is not None and isinstance(micro, int) and isinstance(accumulation, int):
        text = _product(stated, micro, accumulation, ranks_of(case))
        if text:
            yield Mismatch(f"train_batch_size is {stated}, but {text}", place, True)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _product(stated: int, micro: int, accumulation: int, ranks: int | None) -> str:
    """What the product is instead; empty where it may be right."""
    product = f"micro-batch {micro} x accumulation {accumulation}"
    if ranks is not None:
        whole = micro * accumulation * ranks
        return "" if stated == whole else f"{product} x {ranks} ranks is {whole}"
    return (
        ""
        if stated % (micro * accumulation) == 0
        else f"{product} is {micro * accumulation}, which it is no multiple of"
    )


def _effective(case: Case) -> Iterator[Mismatch]:
    """A project's own setting for the effective batch, which nothing enforces."""
    micro, accumulation, ranks = case.job.train.batch_size, case.job.train.grad_accum, ranks_of(case) or 1
    if micro is None or accumulation is None:
        return
    right = {micro * accumulation * ranks, micro * accumulation, micro * ranks}
    for name, expr in worst_box(case).constants.items():
        stated = evaluate(expr) if name.split(".")[-1] in STATED else None
        if not isinstance(stated, int) or isinstance(stated, bool) or expr.origin is None or stated in right:
            continue
        if expr.origin != case.origin("train.batch_size"):
            product = (
                f"micro-batch {micro} x accumulation {accumulation} x ranks {ranks} is {micro * accumulation * ranks}"
            )
            yield Mismatch(f"{name} is {stated}, but {product}", expr.origin, False)
