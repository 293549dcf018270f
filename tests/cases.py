"""Hand-built cases: a job written in one file, with laws simple enough to compute in the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from preflight.space.jobs import JobMaker
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval, LargestAllocation
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu, Node
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Fact, Problem, Request
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Box, Source, Study
from preflight.vocabulary.values import Axis, Const, Expr, Op, Origin, Ref, Span, Value
from preflight.vocabulary.verdicts import BoxVerdict, Counts, Point, SafeBox, SpaceVerdict

GIB = 2**30
PATH = "train.sh"


def origin(line: int, path: str = PATH) -> Origin:
    """A place: line N of a file of 100-character lines."""
    return Origin(path, Span(100 * (line - 1), 100 * (line - 1) + 10))


def spread(expected: int) -> Interval:
    """Five per cent to either side."""
    return Interval(expected * 95 // 100, expected, expected * 105 // 100)


@dataclass(frozen=True)
class Device:
    """A device law: states + per_sample x batch x length (+ evaluation) bytes, all of the states in one lump."""

    capacity: int | None = 16 * GIB
    states: int = 2 * GIB
    per_token: int = GIB // 1024
    evaluation: int = 0
    """per sample of the evaluation batch"""
    vocabulary: int = 0
    """per entry of the vocabulary"""
    logits: LargestAllocation | None = None

    def __call__(self, job: Job) -> DeviceEstimate | None:
        if job.train.batch_size is None:
            return None
        tokens = job.train.batch_size * (job.train.seq_len or 1)
        activations = tokens * self.per_token // (4 if job.train.gradient_checkpointing else 1)
        states = self.states + self.vocabulary * (job.train.vocab_size or 0)
        validation = self.evaluation * (job.validation.batch_size or 0)
        phase = "validation" if validation > activations else "backward"
        peak = max(activations, validation)
        process = spread(states + peak)
        return DeviceEstimate(
            requested=process,
            allocated=process,
            reserved=process,
            process=process,
            phase=phase,
            where="model.layers.0",
            breakdown={"weights": states // 4, "gradients": states // 4, "optimizer": states // 2, "activations": peak},
            phases={"backward": states + activations, "validation": states + validation},
            largest_allocation=self.logits,
            capacity=self.capacity,
            verdict=process.verdict(self.capacity),
        )


@dataclass(frozen=True)
class Host:
    """A host law: 1 GiB + workers x batch x sample for training, the same again for validation."""

    limit: int | None = 32 * GIB
    limited_by: str = "memory_limit"

    def __call__(self, job: Job) -> HostEstimate | None:
        data, sample = job.data, job.data.sample_bytes
        if sample is None:
            return None
        train = (data.workers or 0) * (job.train.batch_size or 1) * sample * (data.prefetch or 2)
        batch = job.validation.batch_size or job.train.batch_size or 1
        validation = 0 if data.validation_workers is None else data.validation_workers * batch * sample
        kept = train if data.persistent_workers or data.validation_overlaps else 0
        total = GIB + max(train, validation + kept)
        spike = GIB + train < total
        limit = job.machine.memory_limit if job.machine.memory_limit is not None else self.limit
        per_node = spread(total)
        return HostEstimate(
            per_node=per_node,
            breakdown={"base": GIB, "workers": total - GIB},
            limit=limit,
            limited_by=self.limited_by,
            verdict=per_node.verdict(limit),
            peak="validation" if spike else "training",
            train_only=GIB + train if spike else None,
        )


Written = Mapping[str, "Value | Expr"]


def bounds_of(written: Written, defaults: Written | None = None) -> dict[str, Bound]:
    """Fields written one per line from line 1 on, then defaults that no file writes."""
    found: dict[str, Bound] = {}
    for line, (name, value) in enumerate(written.items(), 1):
        expr: Expr = value if isinstance(value, (Const, Ref, Op)) else Const(value, origin(line))
        place = expr.origin or origin(line)
        found[name] = Bound(name, expr, place, where=PATH)
    for name, value in (defaults or {}).items():
        found[name] = Bound(name, Const(value), default=True, source=Source.library)  # type: ignore[arg-type]
    return found


def texts_of(box: Box) -> dict[str, str]:
    """Files with every literal of a box at its place, in lines of 100 characters."""
    found: dict[str, dict[int, str]] = {}
    for bound in box.fields.values():
        for literal in _literals(bound.expr):
            if literal.origin is not None:
                line = literal.origin.span.start // 100
                found.setdefault(literal.origin.path, {}).setdefault(line, str(literal.value)[:10])
    return {
        path: "".join(f"{lines.get(number, ''):<99}\n" for number in range(max(lines) + 1))
        for path, lines in found.items()
    }


def _literals(expr: Expr) -> list[Const]:
    if isinstance(expr, Op):
        return [literal for operand in expr.operands for literal in _literals(operand)]
    return [expr] if isinstance(expr, Const) else []


def case(
    written: Written,
    *,
    defaults: Written | None = None,
    device: Callable[[Job], DeviceEstimate | None] | None = None,
    host: Callable[[Job], HostEstimate | None] | None = None,
    axes: tuple[Axis, ...] = (),
    worst: Mapping[str, Value] | None = None,
    counts: Counts | None = None,
    safe: SafeBox | None = None,
    facts: Mapping[str, Value] | None = None,
    problems: tuple[Problem, ...] = (),
    request: Request | None = None,
    constants: Mapping[str, Expr] | None = None,
    unknown: tuple[str, ...] = (),
    gpu: Gpu | None = None,
    node: Node | None = None,
    settings: Settings | None = None,
    options: Options | None = None,
    model: str | None = "openai-gpt",
) -> Case:
    """A case of one box; `worst` picks the axes' values of its worst combination. `model` is trained where nothing of
    what is written names one; None: nothing says what is."""
    named = any(name.startswith("model.") for name in {**written, **(defaults or {})})
    known = {} if named or model is None else {"model.name": model}
    box = Box(bounds_of(written, {**known, **(defaults or {})}), axes, constants=constants or {})
    assignment = dict(worst or {})
    job = JobMaker(box).at(assignment).job

    def estimate(job: Job) -> Estimates:
        return Estimates(device(job) if device else None, host(job) if host else None, unknown)

    point = Point(assignment, job, estimate(job))
    verdicts = {one.verdict for one in (point.estimates.device, point.estimates.host) if one is not None}
    exceeds, risky = "exceeds" in verdicts, "at-risk" in verdicts
    found = counts or Counts(fits=not exceeds and not risky, at_risk=risky and not exceeds, exceeds=exceeds)
    study = Study(
        (PATH,),
        ("test",),
        (box,),
        request=request,
        facts={name: Fact(name, value, origin(90)) for name, value in (facts or {}).items()},
        problems=problems,
    )
    own = settings or Settings()
    project = Project(Path("."), own, overlay=texts_of(box))
    space = SpaceVerdict((BoxVerdict(box, found, point, safe),), found, point, box.combinations)
    return Case(study, 0, project, own, space, estimate, gpu=gpu, node=node, options=options or Options())


def findings(case: Case, *rules: type[Rule]) -> list[Finding]:
    """What rules say about a case; each is given its own options, as the engine does."""
    return [found for rule in rules for found in rule().check(replace(case, options=rule.options()))]


__all__ = ["GIB", "PATH", "Device", "Host", "bounds_of", "case", "findings", "origin", "spread"]
