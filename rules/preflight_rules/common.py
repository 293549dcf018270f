"""What all rules share: words for a job, severities from intervals, findings from problems, and edits of a Job."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from preflight.fixes.invert import solutions
from preflight.memory.host.estimate import sample_bytes
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate, Interval
from preflight.vocabulary.findings import Change, Confidence, Finding, Part, Proposal, Safety, Severity
from preflight.vocabulary.job import Job
from preflight.vocabulary.rule import Case
from preflight.vocabulary.spelling import Invalid, normal
from preflight.vocabulary.study import Box
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Expr,
    Op,
    Origin,
    Range,
    Unbounded,
    Unknown,
    Value,
    evaluate,
    names,
    origins,
    substitute,
)

T = TypeVar("T")


def gib(size: float) -> str:
    """Bytes as people read them: "23.5 GiB", "7.45 GiB", and below one GiB in MiB: "1.1 MiB"."""
    if abs(size) < 2**30:
        return f"{size / 2**20:.4g} MiB"
    return f"{size / 2**30:,.2f}".rstrip("0").rstrip(".") + " GiB"


def at_most(size: int) -> str:
    """Bytes in words, cut and not rounded: what is said to fit does fit."""
    unit = 2**30 // 100 if size >= 2**30 else 2**20 // 10
    return gib(size // unit * unit)


def severity_of(interval: Interval, capacity: int | None) -> tuple[Severity, Confidence] | None:
    """How bad a need of `interval` is against `capacity`; None where it fits or the capacity is unknown.

    Low end above: an error, and sure. Middle above: an error. Only the high end above: a warning.
    """
    if capacity is None or interval.high <= capacity:
        return None
    if interval.low > capacity:
        return Severity.error, Confidence.high
    if interval.expected > capacity:
        return Severity.error, Confidence.medium
    return Severity.warning, Confidence.low


def model_name(job: Job) -> str:
    """What to call the model in a message."""
    model = job.model
    name = model.name or model.target or model.path or model.architecture
    if name is None and model.config is not None:
        name = str(model.config.get("model_type") or "model by dimensions")
    if name is None and model.parameters is not None:
        name = f"{model.parameters:,} parameters"
    return name or "unnamed model"


def describe(job: Job) -> str:
    """The bound numbers: "bert-large-uncased, batch 48 x 480, bf16-mixed, adamw (foreach)"."""
    train = job.train
    words = [model_name(job)]
    if train.vocab_size is not None:
        words.append(f"vocabulary {train.vocab_size:,}")
    batch = "?" if train.batch_size is None else str(train.batch_size)
    size = train.image_size if train.seq_len is None else train.seq_len
    words.append(f"batch {batch}" + ("" if size is None else f" x {size}"))
    if train.grad_accum is not None and train.grad_accum > 1:
        words.append(f"accumulation {train.grad_accum}")
    words.append(train.precision or "precision unknown")
    implementation = f" ({train.optimizer_impl})" if train.optimizer_impl else ""
    words.append((train.optimizer or "optimizer unknown") + implementation)
    if train.gradient_checkpointing:
        words.append("gradient checkpointing")
    if train.peft.method:
        words.append(f"{train.peft.method} r={train.peft.r}")
    if job.parallel.strategy not in ("none", None):
        words.append(str(job.parallel.strategy))
    return ", ".join(words)


def describe_loaders(job: Job) -> str:
    """The numbers that host memory hangs on: "batch 64, 16 workers, prefetch 2, one sample 1.17 MiB, 4 ranks"."""
    data = job.data
    batch = "?" if job.train.batch_size is None else str(job.train.batch_size)
    words = [f"batch {batch}", "workers unknown" if data.workers is None else count(data.workers, "worker")]
    words.append(f"prefetch {'?' if data.prefetch is None else data.prefetch}")
    sample = sample_bytes(job)[0]
    words.append("sample size unknown" if sample is None else f"one sample {gib(sample)}")
    if data.validation_workers is not None:
        validation = "?" if job.validation.batch_size is None else str(job.validation.batch_size)
        words.append(f"validation batch {validation} with {count(data.validation_workers, 'worker')}")
    if data.persistent_workers:
        words.append("persistent workers")
    if job.parallel.ranks_per_node not in (1, None):
        words.append(f"{job.parallel.ranks_per_node} ranks per node")
    return ", ".join(words)


def count(number: int, noun: str) -> str:
    """ "1 worker", "16 workers"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def parts_of(breakdown: Mapping[str, int]) -> tuple[Part, ...]:
    """A breakdown as parts, empty ones left out, in the breakdown's own order."""
    return tuple(Part(name, size) for name, size in breakdown.items() if size > 0)


def sum_of(breakdown: Mapping[str, int], limit: int = 5) -> str:
    """The largest parts in words: "weights 1.25 GiB, activations 20.1 GiB"."""
    largest = sorted(breakdown.items(), key=lambda item: -item[1])[:limit]
    return ", ".join(f"{name.replace('_', '-')} {gib(size)}" for name, size in largest if size > 0)


def bounds(interval: Interval) -> tuple[int, int, int]:
    """An interval as findings carry it."""
    return (interval.low, interval.expected, interval.high)


def device_of(case: Case) -> DeviceEstimate | None:
    """The worst combination's device estimate."""
    return case.estimates.device


def host_of(case: Case) -> HostEstimate | None:
    """The worst combination's host estimate."""
    return case.estimates.host


def gpu_name(case: Case) -> str:
    """ "RTX 4090" or "the GPU"."""
    return case.gpu.name if case.gpu is not None else case.job.machine.gpu or "the GPU"


def several(case: Case) -> bool:
    """Whether the study is a search whose combinations differ in memory: then the space's rules speak of it."""
    return case.space.combinations is None or case.space.combinations > 1


def changed(case: Case, changes: Mapping[str, object]) -> Job:
    """The worst combination's job after an edit of the places that `changes` are written at.

    Fields that are derived from the same text follow: a validation loader with twice the workers has them halved too.
    """
    box = worst_box(case)
    places: dict[Origin, tuple[Const, Const]] = {}
    single = _constants(box)
    for name, value in changes.items():
        bound = box.fields.get(name)
        if bound is None:
            continue
        expr = substitute(bound.expr, single)
        for literal, wanted in next(solutions(expr, value), ()):  # type: ignore[arg-type]
            if literal.origin is not None:
                places[literal.origin] = (literal, Const(wanted, literal.origin))
    env: dict[str, Expr] = {name: Const(value) for name, value in {**box.fixed, **case.worst.assignment}.items()}
    derived: dict[str, object] = {}
    for name, bound in box.fields.items():
        expr = substitute(bound.expr, single)
        if name in changes or not any(origin in places for origin in origins(expr)):
            continue
        try:
            value = normal(name, evaluate(_replace(expr, places), env), bound.setting)
        except Invalid:
            continue
        if not isinstance(value, Unknown):
            derived[name] = value
    return with_fields(case.job, {**derived, **changes})


def _constants(box: Box) -> dict[str, Expr]:
    """Axes with one value, which are settings like any other: `values: [64]`."""
    found: dict[str, Expr] = {}
    for axis in box.axes:
        if isinstance(axis.domain, Choices) and len(axis.domain.values) == 1:
            found[axis.name] = Const(axis.domain.values[0], axis.domain.origins[0] if axis.domain.origins else None)
    return found


def _replace(expr: Expr, places: Mapping[Origin, tuple[Const, Const]]) -> Expr:
    if isinstance(expr, Const) and expr.origin is not None and expr.origin in places:
        return _follow(expr, *places[expr.origin])
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(_replace(operand, places) for operand in expr.operands), expr.origin)
    return expr


def _follow(derived: Const, old: Const, new: Const) -> Const:
    """What a constant becomes whose text becomes `new`: a whole multiple of it (twice the workers) stays one."""
    if derived.value == old.value:
        return new
    if isinstance(derived.value, int) and isinstance(old.value, int) and isinstance(new.value, int) and old.value:
        times, rest = divmod(derived.value, old.value)
        return derived if rest else Const(times * new.value, derived.origin)
    return derived


def worst_box(case: Case) -> Box:
    """The box that the worst combination lies in."""
    return next(verdict.box for verdict in case.space.boxes if verdict.worst is case.space.worst)


def axes_of(case: Case, field: str) -> tuple[Axis, ...]:
    """The axes with more than one value that a Job field hangs on, in the worst combination's box."""
    bound = case.bound(field)
    if bound is None:
        return ()
    used = set(names(bound.expr))
    return tuple(axis for axis in worst_box(case).axes if axis.name in used and _varies(axis))


def _varies(axis: Axis) -> bool:
    if isinstance(axis.domain, Choices):
        return len(axis.domain.values) > 1
    return isinstance(axis.domain, Unbounded) or axis.domain.high > axis.domain.low


def written(case: Case, field: str) -> bool:
    """Whether a literal in the files makes the field's value, with no axis of a search behind it."""
    bound = case.bound(field)
    if bound is None or axes_of(case, field):
        return False
    expr = substitute(bound.expr, _constants(worst_box(case)))
    return next(solutions(expr, case.job.get(field)), None) is not None  # type: ignore[arg-type]


def settable(case: Case, field: str) -> bool:
    """Whether an edit could give `field` another value: it is written, or its consumer is known to accept it.

    A hint that saves estimates; what an edit can really do is decided where edits are made.
    """
    if written(case, field):
        return True
    bound = case.bound(field)
    known = case.fact("framework") not in (None, "hand-written")
    return (bound is None or bound.origin is None) and known and not axes_of(case, field)


def possible(case: Case, changes: Iterable[Change]) -> bool:
    """Whether every change has a way back to text that makes it."""
    from preflight.fixes.edits import edits

    return all(edits(change, case) is not None for change in changes)


def largest(values: Sequence[T], good: Callable[[T], bool]) -> T | None:
    """The largest of ascending `values` that is good, None where none is. Good ones come first: bisection."""
    count = bisect_left(values, True, key=lambda value: not good(value))
    return values[count - 1] if count else None


def smallest(values: Sequence[T], good: Callable[[T], bool]) -> T | None:
    """The smallest of ascending `values` that is good, None where none is. Good ones come last."""
    return largest(list(reversed(values)), good)


def values_text(kept: tuple[Value, ...], domain: object = None) -> str:
    """Values kept of an axis, in words: "16, 32", or "16 to 64" for a range."""
    if isinstance(domain, Range) and len(kept) == 2:
        return f"{_text(kept[0])} to {_text(kept[1])}"
    return ", ".join(_text(value) for value in kept)


def _text(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)


def assignment_text(assignment: Mapping[str, Value]) -> str:
    """One combination in words: "train.batch_size=48, tok.max_length=480"."""
    return ", ".join(f"{name}={_text(value)}" for name, value in assignment.items())


def related_of(case: Case, first: Origin | None, *pairs: tuple[str, str]) -> tuple[tuple[Origin, str], ...]:
    """Places of further fields (field, words), the finding's own place and repetitions left out."""
    seen, found = {first}, []
    for name, words in pairs:
        origin = case.origin(name)
        if origin is not None and origin not in seen:
            seen.add(origin)
            found.append((origin, words))
    return tuple(found)


def from_problems(case: Case, name: str) -> Iterator[Finding]:
    """What the readers reported under the rule `name`, as findings; a problem that has one repair brings it along."""
    for problem in case.study.problems:
        if problem.rule != name:
            continue
        proposals: tuple[Proposal, ...] = ()
        if problem.fix is not None:
            edit = Edit(problem.origin.path, problem.origin.span, problem.fix)
            safety = Safety.safe if problem.safe else Safety.unsafe
            proposals = (Proposal(f"write `{problem.fix}`", safety=safety, edits=(edit,)),)
        yield Finding(
            rule=name,
            severity=Severity(problem.severity),
            confidence=Confidence.high,
            message=problem.message,
            origin=problem.origin,
            related=problem.related,
            proposals=proposals,
        )
