"""Estimates, jobs and findings as plain data of the JSON contract, for `check` and `estimate`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from preflight.reports.contract import (
    AssumptionJson,
    BranchJson,
    CertaintyJson,
    DeviceJson,
    EditJson,
    EstimatesJson,
    FindingJson,
    HostJson,
    IntervalJson,
    PlaceJson,
    StartJson,
    StudyJson,
)
from preflight.reports.contract import Plain as Plain
from preflight.reports.places import place, source_of
from preflight.reports.rules import address
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.job import Job
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Const, Origin, Unknown, thawed


def written(document: object) -> str:
    """A document as JSON text, one final newline. Numbers that JSON does not have (infinity, NaN) are null."""
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    """`value` without infinities and NaN, which a hostile file may hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def interval(found: Interval) -> IntervalJson:
    """{low, expected, high}, bytes."""
    return {"low": found.low, "expected": found.expected, "high": found.high}


def device(estimate: DeviceEstimate | None) -> DeviceJson | None:
    """The memory of one GPU; None if it is unknown."""
    if estimate is None:
        return None
    largest = estimate.largest_allocation
    return {
        "requested": interval(estimate.requested),
        "allocated": interval(estimate.allocated),
        "reserved": interval(estimate.reserved),
        "process": interval(estimate.process),
        "phase": estimate.phase,
        "where": estimate.where,
        "breakdown": dict(estimate.breakdown),
        "phases": dict(estimate.phases),
        "largest_allocation": None
        if largest is None
        else {"bytes": largest.bytes, "where": largest.where, "product": largest.product},
        "capacity": estimate.capacity,
        "verdict": estimate.verdict,
        "assumptions": [assumption(one) for one in estimate.assumptions],
        "lower_bound": estimate.lower_bound,
        "largest_batch_size": estimate.largest_batch_size,
    }


def host(estimate: HostEstimate | None) -> HostJson | None:
    """The memory of one node; None if it is unknown."""
    if estimate is None:
        return None
    return {
        "per_node": interval(estimate.per_node),
        "breakdown": dict(estimate.breakdown),
        "limit": estimate.limit,
        "limited_by": estimate.limited_by,
        "verdict": estimate.verdict,
        "assumptions": [assumption(one) for one in estimate.assumptions],
    }


def estimates(found: Estimates) -> EstimatesJson:
    """{device, host}."""
    return {"device": device(found.device), "host": host(found.host)}


def certainty(found: Estimates, standings: Mapping[str, Standing], unknown: Iterable[Unknown] = ()) -> CertaintyJson:
    """How well an estimate is known: its verdict, what that depends on, how each field is known, and what is missing.

    `unknown`: the values of the files that cannot be known, beside those that keep a side from being estimated.
    """
    untraced = found.device.cannot_trace if found.device is not None else None
    causes = dict.fromkeys((*found.causes.values(), *([untraced] if untraced is not None else []), *unknown))
    return {
        "verdict": found.verdict,
        "assumptions": [assumption(one) for one in found.assumptions],
        "standings": {name: standing.value for name, standing in standings.items()},
        "unknown": list(found.unknown),
        "unknown_causes": [
            {"cause": one.cause.value, "fields": list(one.fields), "words": one.words} for one in causes
        ],
    }


def assumption(found: Assumption) -> AssumptionJson:
    """A field that a verdict depends on and that is not known well."""
    return {
        "field": found.field,
        "value": thawed(found.value),
        "standing": found.standing.value,
        "why": found.why,
    }


def job(found: Job) -> Plain:
    """Every field of a Job; null is unknown."""
    data: Plain = found.model_dump(mode="json")
    return data


def search(found: Study) -> list[BranchJson]:
    """The branches of a search, with the parameters that decide its memory."""
    return [
        {
            "fixed": {name: thawed(value) for name, value in box.fixed.items()},
            "parameters": [axis.name for axis in box.memory_axes],
        }
        for box in found.boxes
    ]


def at(outcome: Outcome, report: Report, origin: Origin | None) -> PlaceJson:
    """{path, line, column, end_line, end_column} of an origin; all null for a finding without a place."""
    if origin is None:
        return {"path": None, "line": None, "column": None, "end_line": None, "end_column": None}
    found = place(report, origin)
    return {
        **start(outcome, report, origin),
        "end_line": found.end_line if found else 1,
        "end_column": found.end_column if found else 1,
    }


def start(outcome: Outcome, report: Report, origin: Origin) -> StartJson:
    """{path, line, column} of an origin."""
    found = place(report, origin)
    return {
        "path": outcome.name(report, origin.path),
        "line": found.line if found else 1,
        "column": found.column if found else 1,
    }


def edit(outcome: Outcome, report: Report, found: Edit) -> EditJson:
    """An edit with its place in the text as it stands."""
    return {**at(outcome, report, Origin(found.path, found.span)), "text": found.text}


def finding(outcome: Outcome, report: Report, found: Finding) -> FindingJson:
    """A finding; its estimate is that of its study's worst combination."""
    worst = report.studies[found.study].space.worst if found.study is not None else None
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        "confidence": found.confidence.value,
        "message": found.message,
        "url": address(outcome, found.rule) or None,
        **at(outcome, report, found.origin),
        "settings": list(found.settings),
        "related": [{**start(outcome, report, origin), "message": words} for origin, words in found.related],
        "estimate": estimates(worst.estimates) if worst is not None else None,
        "fix": None
        if found.fix is None
        else {
            "title": found.fix.title,
            "safety": found.fix.safety.value,
            "edits": [edit(outcome, report, one) for one in found.fix.edits],
        },
    }


def study(outcome: Outcome, report: Report, result: StudyResult) -> StudyJson:
    """A study with the counts of its space and its worst combination."""
    space, worst = result.space, result.space.worst
    counts = space.counts
    return {
        "paths": [outcome.name(report, path) for path in result.study.paths],
        "dialects": list(result.study.dialects),
        "judged": result.unjudged is None,
        "combinations": space.combinations,
        "unsafe": counts.unsafe,
        "counts": {
            "fits": counts.fits,
            "fits_if": counts.fits_if,
            "at_risk": counts.at_risk,
            "exceeds": counts.exceeds,
            "unknown": counts.unknown,
        },
        "worst": job(worst.job),
        "origins": _origins(outcome, report, result),
        **certainty(worst.estimates, result.standings, _unknown_values(result)),
        **estimates(worst.estimates),
    }


def _unknown_values(result: StudyResult) -> Iterator[Unknown]:
    """Why Job fields of the worst combination are unknown, each with the name of its field."""
    for name, bound in _box(result).fields.items():
        value = bound.expr.value if isinstance(bound.expr, Const) else None
        if isinstance(value, Unknown):
            yield replace(value, fields=tuple(dict.fromkeys((name, *value.fields))))


def _box(result: StudyResult) -> Box:
    """The box that contains the worst combination."""
    return next(one.box for one in result.space.boxes if one.worst is result.space.worst)


def _origins(outcome: Outcome, report: Report, result: StudyResult) -> Mapping[str, StartJson]:
    """The place of each Job field of the worst combination."""
    return {
        name: start(outcome, report, bound.origin)
        for name, bound in _box(result).fields.items()
        if bound.origin is not None and source_of(report, bound.origin.path) is not None
    }
