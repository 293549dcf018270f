"""`preflight fit` as text and as JSON: the values with which a job fits, and what is missing where none is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.reports.figures import mark
from preflight.reports.plain import Plain, estimates, interval, job
from preflight.reports.streams import clean
from preflight.reports.style import Cell, Look, table, verdict, wrap
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.fits import NEED, Answer, FitOf, FitOfStudy, Row
from preflight.vocabulary.standing import Assumption
from preflight.vocabulary.values import thawed
from preflight.vocabulary.words import assignment_text, at_most, describe, fits_if, gib

_SIZES = (NEED, "data.sample_bytes", "data.in_memory_bytes", "data.worker_bytes")
"""Fields in bytes, which people read in other units."""


def render(found: Sequence[FitOfStudy], look: Look) -> str:
    """The whole text: a block for each study, and in it for each part of its search."""
    blocks = [block for one in found for block in _study(one, len(found) > 1, look)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _study(found: FitOfStudy, named: bool, look: Look) -> Iterator[list[str]]:
    for part in found.parts:
        lead = f"{found.paths[0]}: " if named and found.paths else ""
        heading = [look.paint(clean(f"{lead}{describe(part.job)}"), "bold")]
        if part.branch:
            heading.append(clean(f"where {assignment_text(part.branch)}"))
        if part.worst:
            heading.append(clean(f"the worst combination of the search: {assignment_text(part.worst)}"))
        yield [wrap(line, look.width, "    ") for line in heading]
        yield _table(part, look)
        yield [wrap(clean(line), look.width, "    ") for line in _remarks(part)]
        for rows in dict.fromkeys(tuple(map(_Row, answer.frontier)) for answer in part.answers if answer.frontier):
            yield _frontier([one.row for one in rows], look)
    yield [wrap(clean(line), look.width, "    ") for line in _fix(found)]
    if found.diff:
        yield [found.diff.rstrip("\n")]
    yield [wrap(f"note: {clean(note)}", look.width, "    ") for note in found.notes]


def _table(part: FitOf, look: Look) -> list[str]:
    rows = [_row(answer, look) for answer in part.answers]
    room, gpu = _room(part), clean(part.gpu)
    title = f"on {gpu or 'the GPU'}, {gib(room)}" if room else f"on {gpu}" if gpu else "no GPU is stated"
    head = (title, "now", "fits", "GiB", "low to high", "")
    return table(rows, look, head, right=(1, 2, 3, 4))


def _room(part: FitOf) -> int | None:
    """The capacity of the GPU that the job is on."""
    devices = [one.estimates.device for one in part.answers if one.estimates is not None and one.field != "machine.gpu"]
    return next((one.capacity for one in devices if one is not None and one.capacity is not None), None)


def _row(answer: Answer, look: Look) -> list[Cell]:
    side = answer.side
    need = None if side is None else side.process if isinstance(side, DeviceEstimate) else side.per_node
    figures = ("", "")
    if need is not None:
        figures = mark(side) + _gibs(need.expected), f"{_gibs(need.low)} to {_gibs(need.high)}"
    now = "?" if answer.stated is None else _value(answer.field, answer.stated)
    if answer.value is None and answer.reason:
        return [answer.title, now, "?", "", "", ("unknown", "")]
    value = "none" if answer.value is None else _value(answer.field, answer.value)
    judged = _verdict(side, look)
    return [answer.title, now, f"{value}+" if answer.open_ended else value, *figures, judged]


def _verdict(side: DeviceEstimate | HostEstimate | None, look: Look) -> Cell:
    return ("", "") if side is None else (clean(verdict(side.verdict, _PLAIN)), "")


_PLAIN = Look()


def _gibs(size: int) -> str:
    return f"{size / 2**30:.2f}"


def _value(field: str, value: object) -> str:
    if field in _SIZES and isinstance(value, int):
        return gib(value) if field == NEED else at_most(value) if value else "0"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _remarks(part: FitOf) -> Iterator[str]:
    """What a row cannot say: what it stands on, what ends it, why there is none."""
    for answer in part.answers:
        side = answer.side
        assumptions: tuple[Assumption, ...] = side.assumptions if side is not None and answer.value is not None else ()
        if answer.value is None and answer.reason:
            missing = f"; state {', '.join(answer.missing)} (--set FIELD=VALUE)" if answer.missing else ""
            yield f"{answer.title} ({answer.field}): unknown: {answer.reason}{missing}"
        if assumptions and side is not None and side.fitting:
            yield f"{answer.title}: {fits_if(assumptions, len(assumptions))}"
        if answer.value is None and not answer.reason and answer.job is not None and answer.side is not None:
            yield f"{answer.title}: {_none(answer)}"
        if answer.limit:
            yield f"{answer.title}: memory is not the limit: {answer.limit}"
        elif answer.open_ended:
            yield f"{answer.title}: no larger value was tried"
        if answer.memory == "device":
            yield from _beside(answer)


def _none(answer: Answer) -> str:
    """That no value fits; the row has the need of the value that needs least."""
    least = answer.job.get(answer.field) if answer.job is not None else None
    if answer.field == "machine.gpu":
        return "no single card of the catalogue holds the job"
    if answer.field == "parallel.gpus_per_node" and answer.job is not None:
        least = (answer.job.parallel.nodes or 1) * (answer.job.parallel.gpus_per_node or 1)
        return f"not even {least:,} GPUs hold the job"
    return f"not even {answer.field} = {least} fits"


def _beside(answer: Answer) -> Iterator[str]:
    """The host's memory, where the answer does not fit it."""
    host = answer.estimates.host if answer.estimates is not None and answer.value is not None else None
    if host is not None and host.verdict in ("exceeds", "at-risk") and host.limit is not None:
        need = f"{gib(host.per_node.expected)} of {gib(host.limit)}"
        yield f"{answer.title}: the host memory of a node is not enough with it: {need}"


class _Row:
    """A row of a frontier that can be compared: several answers may have the same table."""

    def __init__(self, row: Row) -> None:
        self.row, self._key = row, tuple(row.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Row) and self._key == other._key


def _frontier(rows: Sequence[Row], look: Look) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(name, row) for name in names] for row in rows]
    return [look.paint("what fits, by what is missing", "bold"), *table(cells, look, names, range(len(names)))]


def _cell(name: str, row: Row) -> str:
    value = row.get(name)
    return "none" if value == 0 and name == "train.batch_size" else "" if value is None else _value(name, value)


def _fix(found: FitOfStudy) -> Iterator[str]:
    if found.fix is None:
        return
    safe = found.fix.safety.value == "safe"
    words = "keeps the run the same; --fix writes it" if safe else f"unsafe: {found.fix.reason or 'another run'}"
    yield f"fix: {found.fix.title} ({words}{'' if safe else '; --unsafe-fixes writes it'})"


# --- as JSON --------------------------------------------------------------------------------------------------------


def document(found: Sequence[FitOfStudy]) -> Plain:
    """The JSON contract of `fit`, version 1."""
    return {"version": 1, "studies": [_plain_study(one) for one in found]}


def _plain_study(found: FitOfStudy) -> Plain:
    fix = found.fix
    return {
        "paths": list(found.paths),
        "parts": [_plain_part(part) for part in found.parts],
        "fix": None
        if fix is None
        else {"field": found.field, "title": fix.title, "safety": fix.safety.value, "reason": fix.reason},
        "diff": found.diff or None,
        "notes": list(found.notes),
    }


def _plain_part(part: FitOf) -> Plain:
    return {
        "job": job(part.job),
        "gpu": part.gpu or None,
        "branch": _thawed(part.branch),
        "worst": _thawed(part.worst),
        "answers": [_plain_answer(one) for one in part.answers],
    }


def _thawed(values: Mapping[str, object]) -> Plain:
    return {name: thawed(value) for name, value in values.items()}


def _plain_answer(answer: Answer) -> Plain:
    known = estimates(answer.estimates) if answer.estimates is not None else {"device": None, "host": None}
    side = answer.side
    need = None if side is None else side.process if isinstance(side, DeviceEstimate) else side.per_node
    return {
        "field": answer.field,
        "kind": answer.kind,
        "memory": answer.memory,
        "value": answer.value,
        "stated": answer.stated,
        "verdict": side.verdict if side is not None else "unknown",
        "need": None if need is None else interval(need),
        "limit": answer.limit or None,
        "open_ended": answer.open_ended,
        "reason": answer.reason or None,
        "missing": list(answer.missing),
        "frontier": [dict(row) for row in answer.frontier],
        **known,
    }
