"""What stands beside a line: the need at settings that move the peak, its parts, and the count above a study."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from preflight.reports.figures import in_map
from preflight.reports.places import place, place_in
from preflight.reports.streams import clean
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.study import Bound
from preflight.vocabulary.text import Place, Source
from preflight.vocabulary.values import Origin, Span
from preflight.vocabulary.words import VERDICTS, assumed, fits_if, gib

_OTHERS = (("at_risk", "at risk"), ("fits_if", "fit only if assumptions hold"), ("unknown", "unknown"))
"""Counts of a search beside those that do not fit, in words."""
MOST = 3
"""Lines of a study that show the need: more would be noise."""
_LEAST = 0.01
"""A setting moves the peak if half of it takes so much of the peak away."""


class Hint(Struct, frozen=True):
    """A text at the end of a line, and what it says on hover."""

    report: Report
    origin: Origin
    line: int
    label: str
    details: str


class Lens(Struct, frozen=True):
    """A text above a study."""

    report: Report
    path: str
    label: str


def hints(outcome: Outcome) -> Iterator[Hint]:
    """The need of each study's worst combination, at the lines that move it most."""
    for report, result in outcome.studies():
        device = result.space.worst.estimates.device
        if device is None or result.unjudged is not None:
            continue
        seen: set[tuple[str, int]] = set()
        for bound in _moving(result, device):
            at = place(report, bound.origin) if bound.origin is not None else None
            if bound.origin is not None and at is not None and (bound.origin.path, at.line) not in seen:
                seen.add((bound.origin.path, at.line))
                yield Hint(report, bound.origin, at.line, need(device), details(device))


def _moving(result: StudyResult, device: DeviceEstimate) -> list[Bound]:
    """The numbers in files that the peak depends on most."""
    worst, estimate = result.space.worst, result.estimate
    box = next(one.box for one in result.space.boxes if one.worst is worst)
    moved: list[tuple[int, Bound]] = []
    for name, bound in box.fields.items():
        value = worst.job.get(name)
        numeric = isinstance(value, int) and not isinstance(value, bool) and value > 1
        if estimate is None or bound.origin is None or not numeric or not name.startswith(("train.", "model.")):
            continue
        half = estimate(with_fields(worst.job, {name: value // 2})).device  # type: ignore[operator]
        change = device.process.expected - half.process.expected if half is not None else 0
        if change > _LEAST * device.process.expected:
            moved.append((change, bound))
    return [bound for _, bound in sorted(moved, key=lambda one: -one[0])[:MOST]]


def need(device: DeviceEstimate) -> str:
    """The label: "!36.9 of 23.5 GiB", with the mark that reports have."""
    room = f" of {device.capacity / 2**30:,.1f}" if device.capacity is not None else ""
    return f"{in_map(device)}{room} GiB"


def details(device: DeviceEstimate) -> str:
    """The interval, the parts and the phases, as lines of text."""
    process = device.process
    room = f" of {gib(device.capacity)}" if device.capacity is not None else ""
    verdict = f": {VERDICTS.get(device.verdict, device.verdict)}" if device.capacity is not None else ""
    least = "at least " if device.lower_bound else ""
    lines = [f"{least}{gib(process.expected)}{room}{verdict} ({gib(process.low)} to {gib(process.high)})", ""]
    parts = sorted(device.breakdown.items(), key=lambda part: -part[1])
    lines += [f"{name.replace('_', ' ')}: {gib(size)}" for name, size in parts if size]
    lines += ["", "by phase: " + ", ".join(f"{name} {gib(size)}" for name, size in device.phases.items())]
    if device.assumptions:
        every = len(device.assumptions)
        lines += ["", fits_if(device.assumptions, every) if device.fitting else f"with {assumed(device.assumptions)}"]
    return "\n".join(clean(line) for line in lines)


def lenses(outcome: Outcome) -> Iterator[Lens]:
    """The verdicts on the combinations of each search; the need of a single job."""
    for report, result in outcome.studies():
        space, counts = result.space, result.space.counts
        device = space.worst.estimates.device
        if result.unjudged is not None:
            label = f"not judged: {clean(result.unjudged.words)}"
        elif result.study.is_search:
            every = f"{space.combinations:,}" if space.combinations is not None else "all"
            label = f"{counts.exceeds:,} of {every} combinations do not fit"
            found = ((getattr(counts, name), words) for name, words in _OTHERS)
            label += "".join(f", {count:,} {words}" for count, words in found if count)
        else:
            label = details(device).split("\n")[0] if device is not None else "GPU memory unknown"
        yield Lens(report, result.study.paths[0], f"preflight: {label}")


def place_of(report: Report, path: str, span: Span) -> tuple[Source, Place]:
    """The lines and columns of a span, with the text that they are in."""
    source = report.project.source(path)
    return source, place_in(source, span)
