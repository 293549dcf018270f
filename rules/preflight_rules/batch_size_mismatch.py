from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from preflight.api import (
    Case,
    Confidence,
    Const,
    Example,
    Finding,
    Origin,
    Reading,
    Rule,
    Severity,
    evaluate,
    related_of,
    several,
)

TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    deepspeed="ds.json",
)
Trainer(model=model, args=arguments).train()
"""
DEEPSPEED = """
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 2,
  "zero_optimization": {"stage": 2}
}
"""
STATED = ("effective_batch_size", "total_batch_size", "global_batch_size")
"""Names that projects give to the product of micro-batch, accumulation and ranks."""
TRAINERS = ("transformers-trainer", "trl")
"""Frameworks that hand their own arguments to DeepSpeed and refuse a file that says otherwise."""
PAIRS = (("train_micro_batch_size_per_gpu", "train.batch_size"), ("gradient_accumulation_steps", "train.grad_accum"))
"""DeepSpeed's names for two Job fields."""


class BatchSizeMismatch(Rule):
    """The batch size that a file states is not micro-batch x accumulation x ranks.

    DeepSpeed does not start when `train_batch_size` differs from the product of `train_micro_batch_size_per_gpu`,
    `gradient_accumulation_steps` and the number of ranks. The Hugging Face integration also refuses a value that
    differs from the trainer's own arguments: an error where the program with the trainer was read, else a warning.
    Other tools do not check a stated effective batch size, so a wrong one misleads the reader.

    There is no fix, because only you know which of the numbers is right.
    """

    name = "batch-size-mismatch"
    summary = "The stated batch is not micro-batch x accumulation x ranks"
    tags = ("configuration", "distributed")
    examples = (
        Example(
            "72 is no multiple of 8 x 2",
            {"train.py": TRAINER, "ds.json": DEEPSPEED.replace("64", "72")},
            says=("train_batch_size is 72", "micro-batch 8 x accumulation 2 is 16"),
        ),
        Example(
            "The trainer is told another accumulation",
            {"train.py": TRAINER.replace("steps=2", "steps=4"), "ds.json": DEEPSPEED},
            says=("gradient_accumulation_steps is 2", "the trainer's own arguments say 4"),
        ),
        Example(
            "64 is 8 x 2 on 4 ranks",
            {"train.py": TRAINER, "ds.json": DEEPSPEED},
            finds=0,
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
        if several(case):
            return
        for mismatch in mismatches(case):
            batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
            yield self.finding(
                mismatch.message,
                mismatch.origin,
                Severity.error if mismatch.refused else Severity.warning,
                Confidence.high if mismatch.refused else Confidence.medium,
                settings=("train.batch_size", "train.grad_accum"),
                related=related_of(
                    case,
                    mismatch.origin,
                    ("train.batch_size", f"batch {batch}"),
                    ("train.grad_accum", f"accumulation {accumulation}"),
                ),
            )


class BatchMismatch(Struct, frozen=True):
    """One number that does not agree. `refused`: the tool refuses to start the run."""

    message: str
    origin: Origin
    refused: bool


def mismatches(case: Case) -> Iterator[BatchMismatch]:
    """Every stated batch size of a study that differs from the product of the other settings."""
    for reading in case.study.readings:
        if reading.dialect == "deepspeed":
            yield from _deepspeed(case, reading)
    yield from _effective(case)


def ranks_of(case: Case) -> int | None:
    """Ranks of the whole launch; None if the number of processes is unknown."""
    bound = case.bound("parallel.ranks_per_node")
    nodes, ranks = case.job.parallel.nodes, case.job.parallel.ranks_per_node
    return None if bound is None or bound.default or nodes is None or ranks is None else nodes * ranks


def _deepspeed(case: Case, reading: Reading) -> Iterator[BatchMismatch]:
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
            message = f"{key} is {value} here, but the trainer's own arguments say {theirs}: both must agree"
            # a loop of the program's own may take the arguments, and compares nothing
            yield BatchMismatch(message, said.origin, case.study.program is not None)
            return
    batch = next((fact for fact in reading.facts if fact.name == "stated_batch"), None)
    stated, place = (batch.value, batch.origin) if batch is not None else (None, None)
    micro, accumulation = factors
    if isinstance(stated, int) and place is not None and isinstance(micro, int) and isinstance(accumulation, int):
        text = _product(stated, micro, accumulation, ranks_of(case))
        if text:
            yield BatchMismatch(f"train_batch_size is {stated}, but {text}", place, True)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _product(stated: int, micro: int, accumulation: int, ranks: int | None) -> str:
    """The product as text if it differs from the stated batch size; empty if both may agree."""
    product = f"micro-batch {micro} x accumulation {accumulation}"
    if ranks is not None:
        whole = micro * accumulation * ranks
        return "" if stated == whole else f"{product} x {ranks} ranks is {whole}"
    return (
        ""
        if stated % (micro * accumulation) == 0
        else f"{product} is {micro * accumulation}, and {stated} is not a multiple of it"
    )


def _effective(case: Case) -> Iterator[BatchMismatch]:
    """A project's own setting for the effective batch size, which no tool checks."""
    micro, accumulation, ranks = case.job.train.batch_size, case.job.train.grad_accum, ranks_of(case) or 1
    if micro is None or accumulation is None:
        return
    right = {micro * accumulation * ranks, micro * accumulation, micro * ranks}
    for name, expr in case.worst_box.constants.items():
        stated = evaluate(expr) if name.split(".")[-1] in STATED else None
        if not isinstance(stated, int) or isinstance(stated, bool) or expr.origin is None or stated in right:
            continue
        if expr.origin != case.origin("train.batch_size"):
            product = (
                f"micro-batch {micro} x accumulation {accumulation} x ranks {ranks} is {micro * accumulation * ranks}"
            )
            yield BatchMismatch(f"{name} is {stated}, but {product}", expr.origin, False)
