"""The post-mortem as JSON, a contract: docs/how-to/postmortem.md describes it, fields are only ever added."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, to_builtins

from preflight.postmortem.circumstances import LoggedMoment
from preflight.postmortem.compare import Compared
from preflight.postmortem.diagnosis import Diagnosis
from preflight.postmortem.evidence import Evidence, LoggedProgress, LogPlace
from preflight.postmortem.run import Postmortem
from preflight.reports import plain
from preflight.reports.contract import CheckJson

VERSION = 1


def render(found: Postmortem) -> str:
    """The document as text, one final newline."""
    return plain.written(document(found))


def document(found: Postmortem) -> plain.Plain:
    """The whole post-mortem as plain data."""
    check: CheckJson | None = None
    if found.outcome is not None:
        from preflight.reports.json_format import document as of_check

        check = of_check(found.outcome)
    return {
        "version": VERSION,
        "causes": [_cause(cause) for cause in found.conclusion.causes],
        "misleading": [
            {"figure": one.figure, "why": one.why, **_place(one.place)} for one in found.conclusion.misleading
        ],
        "estimates": [_compared(one) for one in found.compared],
        "check": check,
        "configuration": list(found.configuration),
        "evidence": [_evidence(one) for one in found.found.evidence if not isinstance(one, LoggedProgress)],
        "summary": {"logs": len(found.found.files), "lines": found.found.lines, "left_out": found.found.left_out},
        "notes": [*found.conclusion.notes, *found.notes],
    }


def _cause(cause: Diagnosis) -> plain.Plain:
    return {
        "limit": cause.limit,
        "title": cause.title,
        "confidence": cause.confidence.value,
        "count": cause.count,
        "places": [_place(place) for place in cause.places],
        "when": _when(cause.when),
        "notes": list(cause.notes),
        "help": list(cause.help),
        "gpu": None if cause.gpu is None else _evidence(cause.gpu),
        "host": None if cause.host is None else to_builtins(cause.host),
        "trial": None if cause.trial is None else _evidence(cause.trial),
    }


def _when(when: LoggedMoment) -> plain.Plain:
    return {
        "phase": when.phase or None,
        "frame": None if when.frame is None else to_builtins(when.frame),
        "beneath": None if when.beneath is None else to_builtins(when.beneath),
        "progress": None if when.last is None else {**_place(when.last), "text": when.last.text},
    }


def _compared(one: Compared) -> plain.Plain:
    candidate = one.candidate
    return {
        "paths": list(candidate.result.study.paths),
        "cause": one.cause.limit,
        "job": plain.job(candidate.job),
        "combination": dict(candidate.combination),
        "certain": candidate.certain,
        **plain.estimates(candidate.estimates),
        "unknown": list(candidate.estimates.unknown),
        "tiers": [
            {
                "tier": row.tier,
                "seen": row.seen,
                "needed": row.needed,
                "estimate": None if row.estimate is None else plain.interval(row.estimate),
            }
            for row in one.rows
        ],
        "words": list(one.words),
    }


def _place(place: LogPlace) -> plain.Plain:
    return {"path": place.path, "line": place.line}


def _evidence(one: Evidence) -> plain.Plain:
    """A piece of evidence by its kind and fields, without the table of tasks."""
    data: plain.Plain = {"kind": type(one).__name__}
    for name in one.__struct_fields__:
        value = getattr(one, name)
        if name != "tasks" or isinstance(value, int):
            data[name] = _plain(value)
    return data


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return to_builtins(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
