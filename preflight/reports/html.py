"""`--output html=FILE`: a page that explains a check or an estimate to somebody who was not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from msgspec import Struct
from msgspec.structs import replace

from preflight.reports import measured, svg
from preflight.reports.estimate import heading
from preflight.reports.explain import Row, rows_of
from preflight.reports.figures import StepPoint, in_map, map_figure, mark, outside_of, step_figure
from preflight.reports.not_known import no_verdict, reason_of
from preflight.reports.page import SAFE, UNSAFE, page, table
from preflight.reports.places import place_in, source_of
from preflight.reports.rules import address
from preflight.reports.style import Look
from preflight.reports.summary import summary
from preflight.reports.svg import text_of
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, Holder, HostEstimate
from preflight.vocabulary.findings import Finding, Part, Safety
from preflight.vocabulary.job import Job
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.progress import TimeOver
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.values import Origin
from preflight.vocabulary.watched import MeasuredRun
from preflight.vocabulary.words import VERDICTS, assignment_text, assumed, fits_if, gib, plural, values_text

_COLUMNS = 240
_ONE_LINE = Look(width=10**6)
"""The browser wraps."""
_DRAWN = 10
"""The most studies of a page with drawings and a table of combinations, those with unsafe combinations first."""
_LISTED = 4096
"""The most combinations that a table lists."""

_COUNTS = (
    ("fits", "fit"),
    ("fits_if", "fit if their assumptions hold"),
    ("at_risk", "are at risk"),
    ("exceeds", "do not fit"),
    ("unknown", "are unknown"),
)

Cell = tuple[str, str]


class Beside(Struct, frozen=True):
    """What a page shows beside an estimate: the moments of the step, the lines that hold the most at the peak where a
    dry run has seen them, and recorded runs of the job."""

    moments: Sequence[StepPoint] = ()
    holders: Sequence[Holder] = ()
    runs: Sequence[MeasuredRun] = ()


def render(outcome: Outcome, look: Look) -> str:
    """The page of a check: the findings, then each study. Files are named from the root of the project, since the page
    is read elsewhere."""
    outcome = replace(outcome, base=outcome.root)
    found = [plural(count, severity.value) for severity, count in outcome.counts.items() if count]
    missing = no_verdict(outcome)
    said = ", ".join([*found, *([missing] if missing else [] if found else ["no findings"])])
    where = f" in {plural(outcome.files, 'file')}" if outcome.files else ""
    body = [f"<h1>preflight: {said}{where}</h1>"]
    body += [f'<p class="warning">{text_of(why)}</p>' for why in outcome.incomplete]
    body += [_said(line) for line in summary(outcome, _ONE_LINE)]
    findings = [_finding(outcome, report, finding) for report, finding in outcome.findings()]
    body += ["<h2>Findings</h2>", *findings] if findings else []
    studies = list(outcome.studies())
    by_need = sorted(range(len(studies)), key=lambda at: -studies[at][1].space.counts.unsafe)
    drawn = set(by_need[:_DRAWN])
    for at, (report, result) in enumerate(studies):
        body += _study(outcome, report, result, at in drawn)
    return page(f"preflight: {said}", "\n".join(body))


def _said(line: str) -> str:
    """A line of the summary, as loud as in a terminal."""
    kind = line.split(":")[0]
    return f'<p class="{kind if kind in ("warning", "unknown") else ""}">{text_of(line.strip())}</p>'


def of_estimate(
    job: Job,
    found: Estimates,
    gpu: str,
    estimate: Callable[[Job], Estimates],
    beside: Beside,
    standings: Iterable[tuple[str, object, Standing]],
    notes: Iterable[str],
) -> str:
    """The page of one Job. `standings`: its fields, each with its value and how it is known."""
    title = heading(job)
    rows: list[list[Cell]] = [
        [(text_of(name), ""), (text_of(value), "value"), (standing.value, "")] for name, value, standing in standings
    ]
    body = [
        f"<h1>{text_of(title)}</h1>",
        "<h2>Memory</h2>",
        *_sides(found, gpu, beside),
        *(f"<p>{text_of(said)}</p>" for said in (found.device.recorded if found.device is not None else ())),
        _map(job, estimate, gpu),
        "<h3>Values</h3>",
        table(
            "Fields of the job, and how each is known",
            [("field", ""), ("value", ""), ("known as", "*")],
            rows,
            "space",
        ),
        *(f"<p>{text_of(note)}</p>" for note in notes),
    ]
    return page(f"preflight: {title}", "\n".join(body))


def of_sides(found: Estimates) -> str:
    """The page of an estimate alone."""
    return page(
        "preflight: an estimate", "\n".join(["<h1>Estimate</h1>", "<h2>Memory</h2>", *_sides(found, "", Beside())])
    )


def framed(page: str) -> str:
    """A page within a notebook. It reaches nothing of the notebook's own page."""
    return (
        f'<iframe title="preflight" sandbox="allow-scripts" width="100%" height="640" srcdoc="{escape(page)}"></iframe>'
    )


# --- findings ---------------------------------------------------------------------------------------------------------


def _finding(outcome: Outcome, report: Report, finding: Finding) -> str:
    kind = finding.severity.value
    url = address(outcome, finding.rule)
    rule = text_of(finding.rule)
    if url.startswith("https://"):
        rule = f'<a href="{text_of(url)}" rel="noreferrer">{rule}</a>'
    lines = [f'<section><h3><span class="{kind}">{kind}</span> {rule}: {text_of(finding.message)}</h3>']
    if finding.origin is not None:
        lines.append(_line(outcome, report, finding.origin, finding.label))
    lines += [_line(outcome, report, origin, words) for origin, words in finding.related[:6]]
    lines += [f"<p>{text_of(text)}</p>" for text in (*finding.notes, *finding.help)]
    if finding.fix is not None:
        flag = "--fix" if finding.fix.safety is Safety.safe else "--unsafe-fixes"
        why = f" ({text_of(finding.fix.reason)})" if finding.fix.reason else ""
        lines.append(f"<p>Fix: {text_of(finding.fix.title)}{why}. <code>preflight check {flag}</code> writes it.</p>")
    return "\n".join([*lines, "</section>"])


def _line(outcome: Outcome, report: Report, origin: Origin, words: str) -> str:
    """The line of a place with its mark, under its name."""
    name = text_of(outcome.name(report, origin.path))
    source = source_of(report, origin.path)
    if source is None:
        return f"<p><code>{name}</code> {text_of(words)}</p>"
    at = place_in(source, origin.span)
    line = source.line(at.line).rstrip("\r\n")
    start, end = at.column - 1, at.end_column - 1 if at.end_line == at.line else len(line)
    start = max(0, min(start, len(line)))
    before, marked, after = line[max(0, start - 200) : start], line[start:end][:300], line[max(start, end) :][:200]
    return (
        f'<p class="soft"><code>{name}:{at.line}:{at.column}</code> {text_of(words)}</p>'
        f"<pre>{text_of(before)}<mark>{text_of(marked)}</mark>{text_of(after)}</pre>"
    )


# --- studies ----------------------------------------------------------------------------------------------------------


def _study(outcome: Outcome, report: Report, result: StudyResult, drawn: bool) -> Iterator[str]:
    space, worst = result.space, result.space.worst
    names = ", ".join(outcome.name(report, path) for path in result.study.paths)
    yield f"<h2>{text_of(names)}</h2>"
    if result.unjudged is not None:
        yield f'<p class="warning">Not judged: {text_of(result.unjudged.words)}</p>'
    elif reason := reason_of(result):
        yield f'<p class="unknown">GPU memory unknown: {text_of(reason)}</p>'
    if result.study.is_search:
        counts = space.counts
        every = f"{space.combinations:,}" if space.combinations is not None else "an unbounded number of"
        said = "; ".join(f"{getattr(counts, name):,} {what}" for name, what in _COUNTS if getattr(counts, name))
        worst_of_all = text_of(assignment_text(worst.assignment))
        yield f"<p>A search of {every} combinations: {said}. The worst: {worst_of_all}.</p>"
        yield from _safe_parts(result)
    gpu = result.gpu.name if result.gpu is not None else ""
    yield from _sides(worst.estimates, gpu, _beside(result) if drawn else Beside())
    if drawn and result.estimate is not None and result.unjudged is None:
        estimate = result.estimate
        yield from _in_time(lambda: [_map(worst.job, estimate, gpu)])
        if result.study.is_search:
            yield from _in_time(lambda: _combinations(result))
    elif not drawn:
        yield f'<p class="soft">A page has drawings of {_DRAWN} studies. Check these files alone to see theirs.</p>'
    yield from _values(outcome, report, rows_of(outcome, report, result))
    yield from (f"<p>{text_of(note)}</p>" for note in (*result.notes, *result.remarks))


def _in_time(parts: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Parts of a page that take many estimates; a note where the time is over before they are made."""
    try:
        yield from list(parts())
    except TimeOver as error:
        yield f'<p class="warning">A drawing or a table is left out: {text_of(error)}.</p>'


def _beside(result: StudyResult) -> Beside:
    """What is shown of the worst job."""
    worst = result.space.worst
    replayed = worst.estimates.device is not None and not worst.estimates.device.lower_bound
    return Beside(
        result.moments(worst.job) if result.moments is not None and replayed else (),
        result.holders(worst.job) if result.holders is not None else (),
        result.measured(worst.job) if result.measured is not None else (),
    )


def _safe_parts(result: StudyResult) -> Iterator[str]:
    for one in result.space.boxes:
        if one.safe is not None and one.safe.combinations:
            domains = {axis.name: axis.domain for axis in one.box.axes}
            kept = "; ".join(
                f"{name}: {values_text(values, domains.get(name))}" for name, values in one.safe.keep.items()
            )
            yield f"<p>The largest part that fits: {one.safe.combinations:,} combinations with {text_of(kept)}.</p>"


def _combinations(result: StudyResult) -> Iterator[str]:
    points = result.points(_LISTED) if result.points is not None else None
    if points is None or not points.found:
        return
    axes = list(dict.fromkeys(name for point in points.found for name in point.assignment))
    rows: list[list[Cell]] = []
    marks: list[str] = []
    boxes = result.space.boxes
    for point in sorted(
        points.found, key=lambda one: -(one.estimates.device.process.expected if one.estimates.device else 0)
    ):
        verdict = point.estimates.verdict
        safe = boxes[point.box].safe if point.box < len(boxes) else None
        inside = (
            safe is not None and bool(safe.combinations) and safe.holds(point.assignment, boxes[point.box].box.axes)
        )
        marks.append(UNSAFE if verdict in ("exceeds", "at-risk") else SAFE if inside else "")
        device, host = point.estimates.device, point.estimates.host
        row = [
            (text_of(values_text((point.assignment[name],))) if name in point.assignment else "-", "num")
            for name in axes
        ]
        needs = [
            (text_of(mark(device) + gib(device.process.expected)) if device else "unknown", "num"),
            (text_of(mark(host) + gib(host.per_node.expected)) if host else "unknown", "num"),
        ]
        rows.append([*row, *needs, (_word(verdict), verdict)])
    caption = "Combinations, those that need most first"
    if not points.whole:
        caption += f" ({len(rows):,} of more: values between the ends of long axes are left out)"
    headings = [
        *((text_of(name), "num*") for name in axes),
        ("GPU memory", "num"),
        ("host memory", "num"),
        ("verdict", "*"),
    ]
    yield "<h3>Combinations</h3>"
    yield table(caption, headings, rows, "space", marks)


def _values(outcome: Outcome, report: Report, rows: Sequence[Row]) -> Iterator[str]:
    """Where each value that matters comes from, with its line."""
    cells: list[list[Cell]] = []
    for row in rows:
        if row.matters:
            source = source_of(report, row.origin.path) if row.origin is not None else None
            line = source.line(place_in(source, row.origin.span).line).strip()[:200] if source and row.origin else ""
            shown = f"<br><code>{text_of(line)}</code>" if line else ""
            known = (row.standing.value, "" if row.standing.holds else "warning")
            origin = (f"{text_of(row.source)}{shown}", "")
            cells.append([(text_of(row.field), ""), (text_of(row.value), "value"), known, origin])
    yield "<h3>Where the values come from</h3>"
    headings = [("field", ""), ("value", ""), ("known as", "*"), ("source", "")]
    yield table("Fields of the worst combination", headings, cells, "space")


# --- memory -----------------------------------------------------------------------------------------------------------


def _sides(found: Estimates, gpu: str, beside: Beside) -> Iterator[str]:
    if found.device is not None:
        yield from _device(found.device, gpu, beside.moments)
    else:
        why = found.reasons.get("device", "no reason is known")
        yield f'<h3>GPU memory</h3><p class="unknown">Unknown: {text_of(why)}</p>'
    yield from _holders(beside.holders)
    yield from measured.beside(beside.runs, found.device)
    if found.host is not None:
        yield from _host(found.host)
    elif reason := found.reasons.get("host"):
        yield f'<h3>Host memory</h3><p class="unknown">Unknown: {text_of(reason)}</p>'


def _device(found: DeviceEstimate, gpu: str, moments: Sequence[StepPoint]) -> Iterator[str]:
    need, card = found.process, gpu or "the GPU"
    room = f" of {gib(found.capacity)} on {card}" if found.capacity is not None else "; no GPU is stated"
    least = "at least " if found.lower_bound else ""
    said = f"{least}{gib(need.expected)} ({gib(need.low)} to {gib(need.high)}){room}"
    yield f'<h3>GPU memory: {text_of(said)}: <span class="{found.verdict}">{_word(found.verdict)}</span></h3>'
    parts = [Part(name, size) for name, size in found.breakdown.items()]
    yield svg.bar(parts, found.capacity, f"Parts of {said}")
    yield _parts("Parts of the GPU memory", parts)
    figure = step_figure(moments, outside_of(moments, found), found.capacity, _COLUMNS)
    if figure is not None:
        peak = f"the peak is {gib(figure.peak.height)} in the phase {figure.peak.phase}"
        yield f"<h3>Memory through a step, GiB</h3>{svg.step(figure, f'Memory through a step: {peak}')}"
    rows: list[list[Cell]] = [
        [
            (text_of(name), ""),
            (text_of((">=" if found.lower_bound else "") + gib(size)), "num"),
            (f"the peak {text_of(found.where and 'in ' + found.where)}" if name == found.phase else "", ""),
        ]
        for name, size in found.phases.items()
    ]
    yield table("Peak of each phase", [("phase", ""), ("process", "num"), ("where", "")], rows)
    largest = found.largest_batch_size if found.capacity is not None else None
    if largest:
        yield f"<p>The largest batch that fits: {largest:,}.</p>"
    yield from _stands_on(found)


def _holders(holders: Sequence[Holder]) -> Iterator[str]:
    """The user's lines that hold the most at the peak of a dry run."""
    rows: list[list[Cell]] = [
        [(text_of(one.name), ""), (gib(one.bytes), "num"), (f"{one.count:,}", "num"), (text_of(one.part), "")]
        for one in holders
    ]
    if rows:
        headings = [("line", ""), ("memory", "num"), ("tensors", "num"), ("part", "")]
        yield "<h3>The largest at the peak, by line of your program</h3>"
        yield table("What the dry run saw alive at the peak, the largest first", headings, rows)


def _host(found: HostEstimate) -> Iterator[str]:
    need = found.per_node
    room = f" of {gib(found.limit)} ({found.limited_by})" if found.limit is not None else ""
    said = f"{gib(need.expected)} ({gib(need.low)} to {gib(need.high)}) a node{room}"
    verdict = f': <span class="{found.verdict}">{_word(found.verdict)}</span>' if found.limit is not None else ""
    yield f"<h3>Host memory: {text_of(said)}{verdict}</h3>"
    parts = [Part(name, size) for name, size in found.breakdown.items()]
    yield svg.bar(parts, found.limit, f"Parts of {said}")
    yield _parts("Parts of the host memory", parts)
    yield from _stands_on(found)


def _stands_on(found: DeviceEstimate | HostEstimate) -> Iterator[str]:
    """The assumptions and notes of a side."""
    if found.assumptions:
        every = len(found.assumptions)
        words = (
            fits_if(found.assumptions, every)
            if found.fitting
            else f"is the need with {assumed(found.assumptions, every)}"
        )
        yield f'<p class="warning">It {text_of(words)}.</p>'
    yield from (f"<p>{text_of(note)}</p>" for note in found.notes)


def _parts(caption: str, parts: Sequence[Part]) -> str:
    rows: list[list[Cell]] = [
        [(text_of(part.name.replace("_", " ")), ""), (gib(part.bytes), "num")] for part in parts if part.bytes
    ]
    shown = table(caption, [("part", ""), ("memory", "num")], rows)
    return f"<details><summary>{text_of(caption)} as a table</summary>{shown}</details>"


def _map(job: Job, estimate: Callable[[Job], Estimates], gpu: str) -> str:
    """What fits, by batch and length. A verdict is a word, too, so no colour is needed to read it."""
    found = map_figure(job, estimate, gpu)
    if not found.sizes:
        return ""
    rows: list[list[Cell]] = [
        [(f"{batch:,}", "num"), *((text_of(in_map(cell)), f"num {cell.verdict}" if cell else "num") for cell in cells)]
        for batch, cells in found.rows
    ]
    headings = [("batch", "num"), *((name, "num") for name in found.headings)]
    return "<h3>What fits</h3>" + table(found.legend, headings, rows)


def _word(verdict: str) -> str:
    return VERDICTS.get(verdict, verdict)
