"""Outcomes made by hand: one sweep with one finding of every shape, no dialect involved."""

from __future__ import annotations

from pathlib import Path

from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval, LargestAllocation
from preflight.vocabulary.findings import Confidence, Finding, Fix, Part, Safety, Severity
from preflight.vocabulary.job import build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Axis, Choices, Const, Origin, Ref, Span
from preflight.vocabulary.verdicts import BoxVerdict, Counts, Point, SpaceVerdict

GIB = 2**30
SWEEP = "program: train.py\nparameters:\n  batch_size:\n    values: [8, 16, 64]  # as in the paper\n"
PROGRAM = "loader = DataLoader(data, num_workers=16)\n"


def span(text: str, part: str) -> Span:
    at = text.index(part)
    return Span(at, at + len(part))


BATCH = Origin("sweep.yaml", span(SWEEP, "64"), ("parameters", "batch_size", "values", 2))
WORKERS = Origin("conf dir/train.py", span(PROGRAM, "16"))


def device(expected: int, capacity: int | None = 24 * GIB) -> DeviceEstimate:
    interval = Interval(expected * 95 // 100, expected, expected * 105 // 100)
    rest = expected - 3 * GIB
    return DeviceEstimate(
        requested=Interval(rest, rest, rest),
        allocated=Interval(rest, rest, rest),
        reserved=interval,
        process=interval,
        phase="backward",
        where="lm_head",
        breakdown={"weights": GIB, "gradients": GIB, "optimizer": GIB, "activations": rest, "logits": 0},
        phases={"forward": rest, "backward": expected},
        largest_allocation=LargestAllocation(GIB, "lm_head", "200 tokens x 10,000,000 vocabulary x 4"),
        capacity=capacity,
        verdict=interval.verdict(capacity),
        find_largest_batch=lambda: 16,
    )


def host(expected: int, limit: int | None = 32 * GIB) -> HostEstimate:
    interval = Interval(expected, expected, expected)
    parts = {"base": GIB, "workers": expected - GIB}
    return HostEstimate(interval, parts, limit, "memory_limit", interval.verdict(limit))


def finding(**changes: object) -> Finding:
    values: dict[str, object] = {
        "rule": "gpu-memory-exceeded",
        "severity": Severity.error,
        "confidence": Confidence.high,
        "message": "needs 40 GiB of 24 GiB",
        "origin": BATCH,
        "settings": ("train.batch_size",),
        "related": ((WORKERS, "the workers"),),
        "label": "too large",
        "notes": ("gpt2, batch 64 x 1024",),
        "help": ("use a smaller batch",),
        "parts": (Part("weights", GIB), Part("activations", 39 * GIB)),
        "interval": (38 * GIB, 40 * GIB, 42 * GIB),
        "capacity": 24 * GIB,
        "side": "device",
        "fix": Fix("write 16", Safety.unsafe, (Edit("sweep.yaml", BATCH.span, "16"),), "the batch changes"),
        "study": 0,
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def study(estimates: Estimates, gpu: Gpu | None = None, smallest: Gpu | None = None) -> StudyResult:
    axis = Axis("batch_size", Choices((8, 16, 64)), fields=("train.batch_size",))
    fields = {
        "train.batch_size": Bound("train.batch_size", Ref("batch_size", BATCH), BATCH, where="sweep.yaml"),
        "data.workers": Bound("data.workers", Const(16, WORKERS), WORKERS, where="train.py"),
    }
    box = Box(fields, (axis,))
    job = build({"train.batch_size": 64, "data.workers": 16, "model.name": "gpt2"})
    point = Point({"batch_size": 64}, job, estimates)
    counts = Counts(fits=2, exceeds=1)
    space = SpaceVerdict((BoxVerdict(box, counts, point),), counts, point, 3)
    paths = ("sweep.yaml", "conf dir/train.py")
    return StudyResult(Study(paths, ("wandb", "program"), (box,)), space, gpu, smallest=smallest)


def outcome(
    root: Path, findings: tuple[Finding, ...] = (), studies: tuple[StudyResult, ...] | None = None, **changes: object
) -> Outcome:
    (root / "conf dir").mkdir(exist_ok=True)
    (root / "sweep.yaml").write_text(SWEEP)
    (root / "conf dir" / "train.py").write_text(PROGRAM)
    if studies is None:
        studies = (study(Estimates(device(40 * GIB), host(8 * GIB), ("train.seq_len",))),)
    values: dict[str, object] = {"files": ("sweep.yaml",)}
    report = Report(Project(root, Settings()), findings, studies, **{**values, **changes})  # type: ignore[arg-type]
    return Outcome((report,), root.resolve(), root.resolve(), {"gpu-memory-exceeded": "A job does not fit its GPU"})
