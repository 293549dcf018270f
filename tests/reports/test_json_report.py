"""The JSON contract, to the letter: a schema written from it, then the values that a consumer reads."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from outcomes import GIB, device, finding, host, outcome, study

from preflight.reports import render
from preflight.reports.style import Look
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.values import Cause

COUNT = {"type": "integer", "minimum": 0}


def record(optional: bool = False, **properties: object) -> dict[str, object]:
    """An object with exactly these keys."""
    kind: object = ["object", "null"] if optional else "object"
    return {"type": kind, "additionalProperties": False, "required": list(properties), "properties": properties}


def rows(item: object) -> dict[str, object]:
    return {"type": "array", "items": item}


TEXT = {"type": "string"}
NULLABLE = {"type": ["integer", "null"], "minimum": 1}
TIER = record(low=COUNT, expected=COUNT, high=COUNT)
BYTES = {"type": "object", "additionalProperties": COUNT}
VERDICT = {"enum": ["fits", "fits-if", "at-risk", "exceeds", "unknown"]}
STANDING = {"enum": [one.value for one in Standing]}
ASSUMPTIONS = rows(record(field=TEXT, value={}, standing=STANDING, why=TEXT))
DEVICE = record(
    optional=True, requested=TIER, allocated=TIER, reserved=TIER, process=TIER, phase=TEXT, where=TEXT, breakdown=BYTES,
    phases=BYTES, largest_allocation=record(optional=True, bytes=COUNT, where=TEXT, product=TEXT), capacity=NULLABLE,
    verdict=VERDICT, assumptions=ASSUMPTIONS, lower_bound={"type": "boolean"},
    largest_batch_size={"type": ["integer", "null"], "minimum": 0},
)  # fmt: skip
HOST = record(
    optional=True,
    per_node=TIER,
    breakdown=BYTES,
    limit=NULLABLE,
    limited_by=TEXT,
    verdict=VERDICT,
    assumptions=ASSUMPTIONS,
)
AT = {"path": TEXT, "line": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}}
END = {"end_line": {"type": "integer", "minimum": 1}, "end_column": {"type": "integer", "minimum": 1}}
MAYBE = {"type": ["integer", "null"], "minimum": 1}
NOWHERE = {"path": {"type": ["string", "null"]}, "line": MAYBE, "column": MAYBE, "end_line": MAYBE, "end_column": MAYBE}
SCHEMA = record(
    version={"const": 2},
    findings=rows(
        record(
            rule=TEXT, severity={"enum": ["error", "warning", "info"]}, confidence={"enum": ["high", "medium", "low"]},
            message=TEXT, url={"type": ["string", "null"]}, **NOWHERE, settings=rows(TEXT),
            related=rows(record(**AT, message=TEXT)),
            estimate=record(optional=True, device=DEVICE, host=HOST),
            fix=record(optional=True, title=TEXT, safety={"enum": ["safe", "unsafe"]},
                       edits=rows(record(**AT, **END, text=TEXT))),
        )
    ),
    studies=rows(
        record(
            paths=rows(TEXT), dialects=rows(TEXT), combinations={"type": ["integer", "null"]}, unsafe=COUNT,
            counts=record(fits=COUNT, fits_if=COUNT, at_risk=COUNT, exceeds=COUNT, unknown=COUNT),
            worst=Job.model_json_schema(), verdict=VERDICT, assumptions=ASSUMPTIONS,
            standings={"type": "object", "additionalProperties": STANDING},
            unknown_causes=rows(record(cause={"enum": [one.value for one in Cause]}, fields=rows(TEXT), words=TEXT)),
            origins={"type": "object", "additionalProperties": record(**AT)}, unknown=rows(TEXT), device=DEVICE,
            host=HOST, judged={"type": "boolean"},
        )
    ),
    statistics=rows(
        record(rule=TEXT, count=COUNT, errors=COUNT, warnings=COUNT, infos=COUNT, safe_fixes=COUNT, unsafe_fixes=COUNT)
    ),
    summary=record(errors=COUNT, warnings=COUNT, infos=COUNT, fixed=COUNT, files=COUNT, incomplete={"type": "boolean"}),
)  # fmt: skip
SCHEMA["$defs"] = Job.model_json_schema()["$defs"]


def test_document_follows_the_contract(tmp_path: Path) -> None:
    bare = finding(rule="stale", origin=None, related=(), fix=None, study=None, settings=())
    nothing = study(Estimates(None, None, ("model.name",)))
    full = study(Estimates(device(40 * GIB), host(8 * GIB)))
    text = render("json", outcome(tmp_path, (finding(), bare), (full, nothing)), Look())
    jsonschema.validate(json.loads(text), SCHEMA, cls=jsonschema.Draft202012Validator)


def test_schema_of_this_test_rejects_what_is_not_in_the_contract(tmp_path: Path) -> None:
    data = json.loads(render("json", outcome(tmp_path, (finding(),)), Look()))
    data["findings"][0]["extra"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_values(tmp_path: Path) -> None:
    data = json.loads(render("json", outcome(tmp_path, (finding(),)), Look()))
    [found] = data["findings"]
    assert (found["path"], found["line"], found["column"], found["end_line"], found["end_column"]) == (
        "sweep.yaml", 4, 21, 4, 23,
    )  # fmt: skip
    assert found["related"] == [{"path": "conf dir/train.py", "line": 1, "column": 39, "message": "the workers"}]
    assert found["fix"]["edits"] == [
        {"path": "sweep.yaml", "line": 4, "column": 21, "end_line": 4, "end_column": 23, "text": "16"}
    ]
    assert found["estimate"]["device"]["process"]["expected"] == 40 * GIB
    [one] = data["studies"]
    assert one["unsafe"] == 1
    assert one["counts"] == {"fits": 2, "fits_if": 0, "at_risk": 0, "exceeds": 1, "unknown": 0}
    assert one["worst"]["train"]["batch_size"] == 64
    assert one["origins"]["data.workers"] == {"path": "conf dir/train.py", "line": 1, "column": 39}
    assert one["unknown"] == ["train.seq_len"]
    assert data["summary"] == {"errors": 1, "warnings": 0, "infos": 0, "fixed": 0, "files": 1, "incomplete": False}


def test_infinities_of_a_hostile_configuration_are_null(tmp_path: Path) -> None:
    strange = study(Estimates(None, None))
    object.__setattr__(strange.space.worst.job.train.peft, "dropout", float("inf"))
    data = json.loads(render("json", outcome(tmp_path, (), (strange,)), Look()))
    assert data["studies"][0]["worst"]["train"]["peft"]["dropout"] is None
