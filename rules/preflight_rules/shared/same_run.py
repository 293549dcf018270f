"""Whether a change keeps the run the same: what the optimiser sees, not how memory is spent on it.

A change is the same run only where that is known. A model that nothing is known of may normalise over its batch, and a
data set that nothing is known of may be a stream: both count as the case in which the run would change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, product

from preflight.api import (
    Case,
    Job,
    JobMaker,
    OwnLayers,
    Unknown,
    Value,
    axes_of,
    balances_experts,
    compares_samples,
    counts_objects,
    has_experts,
    model_parts,
    names,
    normalises_over_batch,
    own_layers,
)

MOST_MODELS = 200
"""Combinations of the settings of a model that are looked at, one by one, in a search."""
_BALANCED = re.compile(
    r"""(?:output_router_logits|moe_aux_loss_coef|router_aux_loss_coef)["']?\s*[:=,\s]\s*["']?([\w.]+)"""
)
_OWN_LOSS = re.compile(r"^[ \t]+def compute_loss\(", re.MULTILINE)
"""A trainer's method that the program writes anew: what it compares or averages over is not read."""
_STREAMING = re.compile(r"""\bstreaming["']?\s*[:=\s]\s*["']?([\w.]+)""")
LOADING = ("ultralytics",)
"""Frameworks that make data sets of their own, which are indexed."""
_OFF = ("false", "none", "null", "no", "0", "0.0", "off")


def accumulation_hazard(case: Case) -> str:
    """Why accumulating over smaller micro-batches would not be the same run; empty where it is."""
    if case.fact("contrastive_loss") is True or any(compares_samples(job) for job in models(case)):
        return (
            "the loss is contrastive: each sample is compared with its micro-batch alone, so accumulation trains with "
            "fewer negatives"
        )
    normalised = statistics_hazard(case)
    if normalised:
        return normalised
    if case.fact("token_mean_loss") is True:
        return "the loop averages the loss over the tokens of a micro-batch, so accumulation weighs samples differently"
    if any(_OWN_LOSS.search(text) for text in _texts(case)):
        return "the trainer's compute_loss is the program's own: whether it compares samples is not known"
    if any(counts_objects(job) for job in models(case)):
        return "the loss is divided by the objects of a micro-batch, so accumulation weighs images differently"
    if balanced(case):
        return "experts are balanced over the tokens of a micro-batch (output_router_logits)"
    if case.fact("scheduler_per_micro_batch") is True:
        return "the learning-rate scheduler steps once per micro-batch, so the schedule would run faster"
    if _dealt_out(case):
        return "each worker makes batches of its own part of the stream: which samples share a step would change"
    if axes_of(case, "train.batch_size"):
        return "the batch size is swept: another value changes what the search explores"
    return _read_elsewhere(case)


def _read_elsewhere(case: Case) -> str:
    """Where the program reads the constant of its batch size for something else: `BS = 256` and `range(BS * 100)`."""
    origin = case.origin("train.batch_size")
    if origin is None or not origin.path.endswith(".py"):
        return ""
    text = case.project.source(origin.path).text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return "the file that sets the batch size cannot be parsed: what else reads it is not known"
    line = text.count("\n", 0, origin.span.start) + 1
    constants = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.value.lineno == line
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for parent in (one for one in ast.walk(tree) if not _takes_a_batch(one)):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in constants:
                return f"line {node.lineno} of {origin.path} reads {node.id} too, for more than a micro-batch"
    return ""


def _takes_a_batch(node: ast.AST) -> bool:
    """Whether what stands here is a size of a batch and nothing else, or only shown."""
    if isinstance(node, ast.keyword):
        return node.arg is not None and "batch" in node.arg
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in ("DataLoader", "print")
    return isinstance(node, ast.FormattedValue)


def statistics_hazard(case: Case) -> str:
    """Why another micro-batch would change what the model's layers compute; empty where it is known not to."""
    own = own_code(case)
    if case.fact("batch_norm") is True or own.normalises is not None:
        return "batch normalisation takes its statistics from the micro-batch"
    if own.foreign is not None:
        return f"layers of {own.foreign} may normalise over the micro-batch"
    for job in models(case):
        found = normalises_over_batch(job)
        if found is True:
            return "batch normalisation takes its statistics from the micro-batch"
        if isinstance(found, Unknown) and not _all_own(job, own):
            return f"whether the model normalises over the micro-batch is not known ({found.words})"
    return ""


def checkpointing_hazard(case: Case) -> str:
    """Why running the forward pass of a block twice would not be the same run; empty where it is."""
    found = statistics_hazard(case)
    if found.startswith("batch normalisation"):
        return "batch normalisation would update its statistics twice"
    return found


def _all_own(job: Job, own: OwnLayers) -> bool:
    """Whether the model is the project's own class, of layers that are all known."""
    named = model_parts(job) or job.model.law or own.libraries
    return not named and own.models and own.imported is None


def workers_hazard(case: Case) -> str:
    """Why another number of training workers, or workers that persist or not, would not be the same run; empty where it
    is. Random numbers that workers draw themselves are no part of the run: no two runs have the same."""
    kind = case.fact("dataset_kind")
    if kind == "iterable":
        return (
            "every worker runs through the data set by itself: samples and their order follow from how many there are"
        )
    if kind == "map" or case.fact("framework") in LOADING:
        return ""
    if any(path.endswith(".py") for path in case.study.paths):
        return "whether the data set is a stream, whose order follows from the workers, is not known"
    return "samples are streamed: their order follows from the workers" if streams(case) else ""


def _dealt_out(case: Case) -> bool:
    """Whether several workers run through a stream, each making whole micro-batches of what it meets."""
    workers = case.job.data.workers
    if workers is not None and workers < 2 and not axes_of(case, "data.workers"):
        return False
    kind, programs = case.fact("dataset_kind"), any(path.endswith(".py") for path in case.study.paths)
    return kind == "iterable" or (kind is None and not programs and streams(case))


def streams(case: Case) -> bool:
    """Whether the settings of a trainer of its own say that its data are streamed."""
    return any(_is_on(match[1]) for text in _texts(case) for match in _STREAMING.finditer(text))


def _texts(case: Case) -> Iterator[str]:
    return (case.project.source(path).text for path in case.study.paths if case.project.exists(path))


def own_code(case: Case) -> OwnLayers:
    """What the project's files that the study runs are made of."""
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
            yield JobMaker(box).at(assignment).job


def _of_model(field: str) -> bool:
    return field == "task" or field.startswith("model.")


def _values(domain: object) -> tuple[Value, ...]:
    """What an axis can be; a range is no name of a model, so its values make no other model of it."""
    return tuple(getattr(domain, "values", ()))


def _combinations(axes: list[tuple[str, tuple[Value, ...]]]) -> Iterator[dict[str, Value]]:
    listed = [(name, values) for name, values in axes if values]
    for values in islice(product(*(one for _, one in listed)), MOST_MODELS):
        yield dict(zip((name for name, _ in listed), values, strict=True))


def balanced(case: Case) -> bool:
    """Whether a loss over the micro-batch balances experts: by the model's configuration, or as the files say."""
    jobs = models(case)
    if any(balances_experts(job) for job in jobs):
        return True
    if not any(has_experts(job) for job in jobs):
        return False
    return any(_is_on(match[1]) for text in _texts(case) for match in _BALANCED.finditer(text))


@lru_cache(maxsize=64)
def _is_on(text: str) -> bool:
    return text.lower() not in _OFF
