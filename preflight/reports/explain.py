"""`check --explain`: every Job field of each study that has a value or lacks one, how it is known, and its source."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from preflight.reports.not_known import reason_of
from preflight.reports.places import place
from preflight.reports.streams import clean
from preflight.reports.style import Cell, Look, table, wrap
from preflight.vocabulary.estimates import Coverage
from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.study import Bound, Source
from preflight.vocabulary.values import Const, Origin, Unknown, evaluate
from preflight.vocabulary.words import gib, plural

_BYTES = ("_bytes", "_memory", "memory_limit", "machine.context", "machine.swap", "machine.shm")
"""Ends of the names of fields that hold bytes."""
NO_VALUE = "-"


def explained(outcome: Outcome, look: Look) -> str:
    """A table for each study, with a row for each Job field that matters; with all evidence, for each that has a value.

    A value that was read matters, one that is only assumed, one that a library or an unread file decides, and one that
    is unknown. A default of preflight's own matters only if the verdict depends on it.
    """
    blocks = ["\n".join(_study(outcome, report, result, look)) for report, result in outcome.studies()]
    return "".join(f"{block}\n\n" for block in blocks)


def _study(outcome: Outcome, report: Report, result: StudyResult, look: Look) -> Iterator[str]:
    names = ", ".join(outcome.shown(report, path) for path in result.study.paths)
    yield look.paint(f"study {names}", "bold")
    if result.study.is_search:
        yield "  (a search: values are those of the worst combination)"
    worst = result.space.worst
    if reason := reason_of(result):
        yield wrap(f"  GPU memory {look.paint('unknown', 'bold cyan')}: {clean(reason)}", look.width, "    ")
    device = worst.estimates.device
    if device is not None and device.coverage is not None:
        yield wrap(f"  {_coverage(device.coverage)}", look.width, "    ")
    for axis, value in worst.assignment.items():
        yield f"  {clean(axis)} = {clean(str(value))}"
    rows = rows_of(outcome, report, result)
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        if look.detail == "all" or row.matters:
            cells.append((row.field, (row.value, _style(row.value, row.standing)), row.standing.value, row.source))
    hidden = len(rows) - len(cells)
    yield from table(cells, look)
    unset = f"{plural(len(fields()) - len(cells) - hidden, 'more field')} without a value: nothing sets them"
    if look.detail == "all":
        yield f"  {unset}"
    else:
        defaults = f"{plural(hidden, 'field')} with a default of preflight's own" if hidden else "no default"
        yield look.paint(f"  not shown: {defaults}, {unset}; -v --explain shows more", "dim")


def _coverage(found: Coverage) -> str:
    """The measured runs behind the interval of the GPU memory."""
    runs = f"{plural(found.rows, 'measured run')} of {plural(found.sources, 'source')}"
    return f"GPU memory as an interval ({found.kind}): it held {found.inside:.0%} of {runs}, made without their source"


class Row(Struct, frozen=True):
    """A Job field of the worst combination: its value, how it is known, and where it comes from, as texts."""

    field: str
    value: str
    standing: Standing
    source: str
    matters: bool
    """False: a default of preflight's own that the verdict does not depend on."""
    origin: Origin | None


def rows_of(outcome: Outcome, report: Report, result: StudyResult) -> list[Row]:
    """The fields of a study that have a value or lack one."""
    worst = result.space.worst
    box = next((one.box for one in result.space.boxes if one.worst is worst), None)
    bounds = box.fields if box is not None else {}
    assumed = {one.field: one.why for one in worst.estimates.assumptions}
    lacking = set(worst.estimates.unknown)
    rows = []
    for name in fields():
        value, source = _row(outcome, report, name, worst.job, bounds.get(name))
        if name in lacking and value == NO_VALUE:
            value, source = "unknown", "no file that was read states it"
        if value == NO_VALUE:
            continue
        bound = bounds.get(name)
        standing = result.standings.get(name, Standing.unknown if value == "unknown" else Standing.default)
        why = assumed.get(name)
        matters = standing is not Standing.default or why is not None or _of_library(bound)
        origin = bound.origin if bound is not None else None
        rows.append(Row(name, value, standing, f"{source}; {why}" if why else source, matters, origin))
    return rows


def _of_library(bound: Bound | None) -> bool:
    """Whether something else than preflight decides the value."""
    return bound is not None and bound.source is not Source.preflight


def _style(value: str, standing: Standing) -> str:
    if value == "unknown":
        return "bold cyan"
    return "dim" if standing is Standing.default else "bold"


def _row(outcome: Outcome, report: Report, name: str, job: Job, bound: Bound | None) -> tuple[str, str]:
    """Value and source of a field."""
    value = job.get(name)
    if bound is None or (bound.default and bound.origin is None and value is None):
        return (NO_VALUE, "") if value is None else (_text(name, value), "preflight's default")
    places = [_place(outcome, report, bound.origin)] if bound.origin is not None else []
    source = places[0] if places else source_text(outcome, report, bound)
    if bound.losers:
        source += f" (beats {', '.join(_place(outcome, report, origin) for origin in bound.losers[:3])})"
    if isinstance(bound.expr, Const) and isinstance(bound.expr.value, Unknown):
        return "unknown", f"{clean(bound.expr.value.words)}{f'; {source}' if places else ''}"
    if value is None:
        found = evaluate(bound.expr)
        return "unknown", f"{clean(found.words)}; {source}" if isinstance(found, Unknown) and places else source
    return _text(name, value), source


def source_text(outcome: Outcome, report: Report, bound: Bound) -> str:
    """Where the value comes from, as text. Files are named relative to the current directory."""
    where = bound.where
    if not where and bound.source is Source.library:  # every program uses it alike
        return str(bound.source.value).partition(", ")[0]
    if bound.source in (Source.file, Source.library):
        where = clean(outcome.shown(report, where))
    return bound.source.value.format(where)


def _text(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name.endswith(_BYTES):
        return f"{value:,} ({gib(value)})"
    text = f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)
    return clean(text if len(text) <= 60 else text[:57] + "...")


def _place(outcome: Outcome, report: Report, origin: Origin) -> str:
    found = place(report, origin)
    name = clean(outcome.shown(report, origin.path))
    return f"{name}:{found.line}:{found.column}" if found else name
