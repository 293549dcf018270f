"""Whether a change keeps the run the same, as the optimiser sees it.

A run counts as the same only if that is known. An unknown model may normalise over its batch, and an unknown data set
may be a stream: both count as a run that would change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice, product

from preflight.api import (
    Case,
    Change,
    Job,
    OwnLayers,
    Unknown,
    Value,
    axes_of,
    balances_experts,
    compares_samples,
    counts_objects,
    has_experts,
    job_maker,
    model_parts,
    names,
    normalises_over_batch,
    own_layers,
    possible,
    same_run_hazard,
)

MOST_MODELS = 200
"""The most combinations of model settings of a search that are looked at."""
_BALANCED = re.compile(
    r"""(?:output_router_logits|moe_aux_loss_coef|router_aux_loss_coef)["']?\s*[:=,\s]\s*["']?([\w.]+)"""
)
_OWN_LOSS = re.compile(r"^[ \t]+def compute_loss\(", re.MULTILINE)
"""A method of a trainer that the program overrides: preflight does not read its comparisons or averages."""
_STREAMING = re.compile(r"""\bstreaming["']?\s*[:=\s]\s*["']?([\w.]+)""")
LOADING = ("ultralytics",)
"""Frameworks that make their own data sets, which are indexed."""
_OFF = ("false", "none", "null", "no", "0", "0.0", "off")


def accumulation_hazard(case: Case) -> str:
    """Why accumulation over smaller micro-batches would change the run; empty if it would not."""

    def known(name: str) -> str | bool:
        return _KNOWN[name](case)

    return same_run_hazard(known)


_KNOWN: Mapping[str, Callable[[Case], str | bool]] = {
    "contrastive": lambda case: (
        case.fact("contrastive_loss") is True or any(compares_samples(job) for job in models(case))
    ),
    "statistics": lambda case: statistics_hazard(case),
    "token_mean": lambda case: case.fact("token_mean_loss") is True,
    "own_loss": lambda case: any(_OWN_LOSS.search(text) for text in _texts(case)),
    "objects": lambda case: any(counts_objects(job) for job in models(case)),
    "balanced": lambda case: balanced(case),
    "scheduler": lambda case: case.fact("scheduler_per_micro_batch") is True,
    "undivided": lambda case: case.fact("loss_undivided") is not None and not division(case),
    "dealt_out": lambda case: _dealt_out(case),
    "searched": lambda case: bool(axes_of(case, "train.batch_size")),
    "read_elsewhere": lambda case: _read_elsewhere(case),
}
"""What the files say of each reason of `same_run_hazard`, which is shared with the guard."""


def division(case: Case) -> tuple[Change, ...]:
    """What divides the loss of a loop by the batches that it adds up, where that leaves the run as it is: one batch."""
    alone = case.job.train.grad_accum == 1 and not axes_of(case, "train.grad_accum")
    change = Change("program.loss_divided", True)
    return (change,) if case.fact("loss_undivided") is not None and alone and possible(case, (change,)) else ()


def _read_elsewhere(case: Case) -> str:
    """A line that reads the constant of the batch size for another purpose: `BS = 256` and `range(BS * 100)`."""
    origin = case.origin("train.batch_size")
    if origin is None or not origin.path.endswith(".py"):
        return ""
    text = case.project.source(origin.path).text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return "the file that sets the batch size cannot be parsed, and other lines may read it"
    line = text.count("\n", 0, origin.span.start) + 1
    constants = {
        target.id: _option_on(node.value, line)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.value.lineno == line
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for parent in (one for one in ast.walk(tree) if not _takes_a_batch(one)):
        for node in ast.iter_child_nodes(parent):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in constants):
                continue
            if not _is_for_a_trainer(parent, constants[node.id]):
                return f"line {node.lineno} of {origin.path} also reads {node.id}, for another purpose"
    return ""


def _option_on(value: ast.AST, line: int) -> str:
    """The option of a call that takes the batch of a device, as in `args = TrainingArguments(...)`; "" of a number."""
    options = (one.arg for one in ast.walk(value) if isinstance(one, ast.keyword) and one.value.lineno == line)
    return next((name for name in options if name is not None and name.startswith("per_device_")), "")


def _is_for_a_trainer(parent: ast.AST, option: str) -> bool:
    """Whether the arguments of a trainer are read here as such, or for another option."""
    if not option:
        return False
    if isinstance(parent, ast.Attribute):
        return parent.attr != option
    if isinstance(parent, ast.Call):
        called = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return str(called).endswith("Trainer")
    return isinstance(parent, ast.keyword) and parent.arg == "args"


def _takes_a_batch(node: ast.AST) -> bool:
    """Whether the expression here is only the size of a batch, or is only printed."""
    if isinstance(node, ast.keyword):
        return node.arg is not None and "batch" in node.arg
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in ("DataLoader", "print")
    return isinstance(node, ast.FormattedValue)


def statistics_hazard(case: Case) -> str:
    """Why another micro-batch would change the results of layers; empty if it is known that it would not."""
    if normalises(case):
        return "batch normalisation takes its statistics from the micro-batch"
    own = own_code(case)
    if own.foreign is not None:
        return f"layers of {own.foreign} may normalise over the micro-batch"
    for job in models(case):
        found = normalises_over_batch(job)
        if isinstance(found, Unknown) and not _all_own(job, own):
            return f"the model may normalise over the micro-batch ({found.words})"
    return ""


def normalises(case: Case) -> bool:
    """Whether a layer is known to take its statistics from the micro-batch."""
    known = case.fact("batch_norm") is True or own_code(case).normalises is not None
    return known or any(normalises_over_batch(job) is True for job in models(case))


def checkpointing_hazard(case: Case) -> str:
    """Why running the forward pass of a block twice would change the run; empty if it would not."""
    return "batch normalisation would update its statistics twice" if normalises(case) else statistics_hazard(case)


def _all_own(job: Job, own: OwnLayers) -> bool:
    """Whether the model is a class of the project with known layers only."""
    named = model_parts(job) or job.model.law or own.libraries
    return not named and own.models and own.imported is None


def workers_hazard(case: Case) -> str:
    """Why another number of training workers, or persistent ones, would change the run; empty if they would not. Random
    numbers that workers draw do not count: they differ in every run anyway."""
    kind = case.fact("dataset_kind")
    if kind == "iterable":
        return (
            "every worker iterates over the data set itself, so samples and their order depend on the number of workers"
        )
    if kind == "map" or case.fact("framework") in LOADING:
        return ""
    if any(path.endswith(".py") for path in case.study.paths):
        return "the data set may be a stream, whose order depends on the number of workers"
    return "samples are streamed, so their order depends on the number of workers" if streams(case) else ""


def _dealt_out(case: Case) -> bool:
    """Whether several workers read a stream, and each makes whole micro-batches from its part."""
    workers = case.job.data.workers
    if workers is not None and workers < 2 and not axes_of(case, "data.workers"):
        return False
    kind, programs = case.fact("dataset_kind"), any(path.endswith(".py") for path in case.study.paths)
    return kind == "iterable" or (kind is None and not programs and streams(case))


def streams(case: Case) -> bool:
    """Whether the settings of a trainer say that its data are streamed."""
    return any(_is_on(match[1]) for text in _texts(case) for match in _STREAMING.finditer(text))


def _texts(case: Case) -> Iterator[str]:
    return (case.project.source(path).text for path in case.study.paths if case.project.exists(path))


def own_code(case: Case) -> OwnLayers:
    """Layers in those files of the project that the study runs."""
    return own_layers(case.study.paths, case.project)


def models(case: Case) -> tuple[Job, ...]:
    """Jobs with every model that the study may train: a fix changes all of them."""
    found = {repr(job.model): job for job in _jobs(case)}
    return tuple(found.values())


def _jobs(case: Case) -> Iterator[Job]:
    yield case.job
    for box in case.study.boxes:
        used = {name for bound in box.fields.values() if _of_model(bound.field) for name in names(bound.expr)}
        axes = [axis for axis in box.axes if axis.name in used]
        for assignment in _combinations([(axis.name, _values(axis.domain)) for axis in axes]):
            yield job_maker(box).at(assignment).job


def _of_model(field: str) -> bool:
    return field == "task" or field.startswith("model.")


def _values(domain: object) -> tuple[Value, ...]:
    """The values of an axis. A range has none here, because it names no model."""
    return tuple(getattr(domain, "values", ()))


def _combinations(axes: list[tuple[str, tuple[Value, ...]]]) -> Iterator[dict[str, Value]]:
    listed = [(name, values) for name, values in axes if values]
    for values in islice(product(*(one for _, one in listed)), MOST_MODELS):
        yield dict(zip((name for name, _ in listed), values, strict=True))


def balanced(case: Case) -> bool:
    """Whether a loss over the micro-batch balances experts, by the configuration of the model or by the files."""
    jobs = models(case)
    if any(balances_experts(job) for job in jobs):
        return True
    if not any(has_experts(job) for job in jobs):
        return False
    return any(_is_on(match[1]) for text in _texts(case) for match in _BALANCED.finditer(text))


@lru_cache(maxsize=64)
def _is_on(text: str) -> bool:
    return text.lower() not in _OFF
