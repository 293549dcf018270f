"""What to ask the user, so that the most studies get a verdict: the Job fields that no file states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct, field

from preflight.engine.estimator import TEXT_TASKS
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.outcome import GPU, AnswerKind, Question, StudyResult
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.values import Cause
from preflight.vocabulary.words import gib

MOST = 5
"""Questions that a report asks. More are not read."""
_MODEL = "model.name"
_OF_TEXTS = ("train.seq_len", "train.sequences_per_sample")

WORDS: Mapping[str, str] = {
    GPU: "Which GPU do the jobs run on?",
    _MODEL: "Which model is trained? (the name of a model that preflight knows)",
    "model.architecture": "Which architecture does the model have?",
    "model.parameters": "How many parameters does the model have?",
    "model.least_parameters": "How many parameters does the model have at least?",
    "train.batch_size": "How many samples does one GPU get at a time?",
    "train.sequences_per_sample": "How many sequences or images go through the model for each sample of a batch?",
    "train.seq_len": "How many tokens does the longest training sample have?",
    "train.target_len": "How many tokens does the longest target have, or how many objects the fullest image?",
    "train.text_len": "How many tokens does the longest text beside an image have?",
    "train.image_size": "How many pixels is the side of a training image?",
    "train.precision": "In which precision is the model trained?",
    "train.weights_dtype": "In which type are the weights loaded?",
    "model.load": "How are the weights loaded onto the host?",
    "train.optimizer": "Which optimizer is used?",
    "train.peft.method": "Which adapter is trained (lora or another), or none?",
    "train.quantization.type": "To what are the weights quantised, if at all?",
    "train.frozen": "Which parts of the model are frozen?",
    "train.attention": "Which implementation of attention is used?",
    "train.grad_accum": "Over how many batches are gradients accumulated?",
    "train.gradient_checkpointing": "Is gradient checkpointing on?",
    "train.reentrant": "Is gradient checkpointing reentrant (use_reentrant)?",
    "train.vocab_size": "How many entries does the vocabulary have?",
    "validation.batch_size": "How many samples does one GPU get at a time in the evaluation?",
    "data.sample_bytes": "How many bytes does one decoded sample take?",
    "data.in_memory_bytes": "How many bytes of the data set stay in memory?",
    "data.workers": "How many worker processes load the data?",
    "parallel.strategy": "How is the model shared among the GPUs?",
    "parallel.offload": "Which states are kept in host memory (offloaded)?",
    "parallel.nodes": "On how many nodes does the job run?",
    "parallel.gpus_per_node": "How many GPUs of a node does the job use?",
    "parallel.ranks_per_node": "How many processes does the job start on a node?",
    "parallel.trials_per_gpu": "How many training runs share one GPU at a time?",
    "parallel.tensor": "Over how many GPUs is each layer split (tensor parallelism)?",
    "parallel.pipeline": "Over how many GPUs are the layers spread (pipeline parallelism)?",
}
_RELEASE = 'or state the release, as in set.software.transformers = "4.57.0"'
_HINTS: Mapping[str, str] = {
    "train.weights_dtype": _RELEASE,
    "model.load": _RELEASE,
    GPU: "preflight machine list shows the names",
    _MODEL: "preflight model list shows the names; a model of your own has none: a dry run of it tells the need, and "
    "set.model.parameters a lower bound",
}


class _Open(Struct):
    """A field that is open: in which studies, and its worth."""

    studies: int = 0
    worth: float = 0.0
    programs: set[str | None] = field(default_factory=set)
    """What these studies run."""
    assumed: list[object] = field(default_factory=list)


def questions_of(results: Iterable[StudyResult]) -> tuple[Question, ...]:
    """The questions, most valuable first. A study is worth 1, shared by all the fields that it lacks.

    An answer holds for all studies of the settings file: questions whose answers would replace what other studies state
    come last, and those that would replace more than they answer are not asked.
    """
    results = [result for result in results if result.unjudged is None]
    found: dict[str, _Open] = {}
    for result in results:
        lacking = dict(_lacking(result))
        for name, value in lacking.items():
            one = found.setdefault(name, _Open())
            one.studies += 1
            one.worth += 1 / len(lacking)
            one.assumed.append(value)
            one.programs.add(result.study.program or result.study.paths[0])
    # different programs train different models: no name answers for all of them
    asked = [_question(name, one, results) for name, one in found.items() if name != _MODEL or len(one.programs) == 1]
    useful = [one for one in asked if one.replaces <= one.studies]
    ordered = sorted(useful, key=lambda one: (one.replaces > 0, one.replaces - found[one.field].worth, one.field))
    return tuple(ordered[:MOST])


def _lacking(result: StudyResult) -> Iterator[tuple[str, object]]:
    """The fields that have to be stated before the study has a verdict, each with the value that is assumed now."""
    job, found = result.space.worst.job, result.space.worst.estimates
    if found.on_gpu:
        open_fields = dict(_device(found, job))
        answerable = found.device is not None or bool(open_fields)
        if answerable and result.gpu is None and job.machine.gpu_memory is None:
            yield GPU, None
        yield from open_fields.items()
    if found.host is None and (job.machine.memory_limit is not None or job.machine.node_memory is not None):
        yield from ((name, None) for name in found.unknown if name.startswith("data.") and name in _kinds())
    elif found.host is not None and found.host.limit is not None and found.host.verdict != "exceeds":
        yield from ((one.field, one.value) for one in found.host.assumptions if one.field in _kinds())


def _device(found: Estimates, job: Job) -> Iterator[tuple[str, object]]:
    """The fields that keep the GPU memory from being known, or from being known well."""
    if found.device is not None:
        if found.device.verdict != "exceeds":
            yield from ((one.field, one.value) for one in found.device.assumptions if one.field in _kinds())
        return
    cause = found.causes.get("device")
    names = [*found.unknown, *(cause.fields if cause is not None else ())]
    if cause is not None and cause.cause in (Cause.model_unknown, Cause.not_modelled):
        # whether the model reads tokens, and how many sequences, is known from its task alone
        names = [name for name in names if name not in _OF_TEXTS or job.task in TEXT_TASKS]
        names = [_MODEL, *names] if cause.cause is Cause.model_unknown else names
    yield from ((name, None) for name in names if name in _kinds() and not name.startswith("data."))


def _question(name: str, asked: _Open, results: list[StudyResult]) -> Question:
    kind, choices = _kinds()[name]
    values = {repr(value): value for value in asked.assumed}
    assumed = next(iter(values.values())) if len(values) == 1 else None
    replaced = 0 if name == GPU else sum(_stated(result, name) for result in results) - asked.studies
    hint = _HINTS.get(name, "")
    if name == GPU and (need := _largest_need(results)):
        hint = f"{need}; {hint}"
    words = WORDS.get(name, f"What is {name}?")
    return Question(name, words, kind, asked.studies, max(replaced, 0), assumed, choices, hint)


def _stated(result: StudyResult, name: str) -> bool:
    """Whether a study has the field: from its files, or because it is asked for."""
    held = result.standings.get(name)
    lacks = any(name == open_ for open_, _ in _lacking(result))
    return lacks or held in (Standing.read, Standing.by_name, Standing.default, Standing.assumed)


def _largest_need(results: Iterable[StudyResult]) -> str:
    """The largest need of the studies whose GPU is asked for, with the smallest GPU that fits."""
    needs = [
        (device.process.expected, result.smallest)
        for result in results
        if (device := result.space.worst.estimates.device) is not None and device.capacity is None
    ]
    if not needs:
        return ""
    need, gpu = max(needs, key=lambda one: one[0])
    return f"the largest need is {gib(need)}" + (f", which {gpu.name} holds" if gpu is not None else "")


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, tuple[AnswerKind, tuple[str, ...]]]:
    """Job field -> the kind of its value, and all its values if they are named. Others cannot be answered in a word."""
    found: dict[str, tuple[AnswerKind, tuple[str, ...]]] = {}
    for name in fields():
        kind = _kind(_annotation(name))
        if kind is not None:
            found[name] = kind
    return found


def _annotation(name: str) -> object:
    part: Any = Job
    for word in name.split("."):
        part = part.model_fields[word].annotation
    return part


def _kind(annotation: object) -> tuple[AnswerKind, tuple[str, ...]] | None:
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for one in get_args(annotation) if one is not type(None) and (kind := _kind(one)) is not None]
        return kinds[0] if kinds else None
    if get_origin(annotation) is Literal:
        return "choice", tuple(str(one) for one in get_args(annotation))
    if annotation is bool:
        return "truth", ("true", "false")
    if annotation in (int, float):
        return "number", ()
    if annotation is str:
        return "text", ()
    inner = get_args(annotation)  # Annotated[int, ...]
    return _kind(inner[0]) if inner and hasattr(annotation, "__metadata__") else None
