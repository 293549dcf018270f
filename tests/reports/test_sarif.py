"""SARIF 2.1.0: the objects we write, as the standard defines them."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import jsonschema
from command_line import PROGRAM, SWEEP, Command
from folders import Write
from msgspec.structs import replace
from outcomes import GIB, device, finding, outcome, study

from preflight import RULE_PAGES
from preflight.engine import registry
from preflight.reports import render
from preflight.reports.style import Look
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.findings import Fix, Safety, Severity
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.values import Origin, Span

TEXT = {"type": "string", "minLength": 1}
POSITIVE = {"type": "integer", "minimum": 1}


def record(required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


def rows(item: object, least: int = 0) -> dict[str, object]:
    return {"type": "array", "items": item, "minItems": least}


# Property names, types and required ones of the sections of the standard that are named beside each.
MESSAGE = record("text", text=TEXT)  # 3.11
ARTIFACT = record("uri", uri={"type": "string", "pattern": r"^[^\s\\:]+$"}, uriBaseId=TEXT)  # 3.4
REGION = record("startLine", startLine=POSITIVE, startColumn=POSITIVE, endLine=POSITIVE, endColumn=POSITIVE)  # 3.30
PHYSICAL = record("artifactLocation", artifactLocation=ARTIFACT, region=REGION)  # 3.29
LOGICAL = rows(record("fullyQualifiedName", fullyQualifiedName=TEXT, kind=TEXT))  # 3.33
LOCATION = record("", id=POSITIVE, physicalLocation=PHYSICAL, logicalLocations=LOGICAL, message=MESSAGE)  # 3.28
REPLACEMENT = record("deletedRegion", deletedRegion=REGION, insertedContent=record("text", text={"type": "string"}))
CHANGE = record("artifactLocation replacements", artifactLocation=ARTIFACT, replacements=rows(REPLACEMENT, 1))  # 3.56
FIX = record("artifactChanges", description=MESSAGE, artifactChanges=rows(CHANGE, 1))  # 3.55
RESULT = record(  # 3.27
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=rows(LOCATION),
    relatedLocations=rows(LOCATION),
    fixes=rows(FIX),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    properties={"type": "object"},
)
URI = {"type": "string", "pattern": r"^https://[^\s]+$"}
RULE = record(  # 3.49
    "id",
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=record("text", text=TEXT, markdown=TEXT),
    helpUri=URI,
    properties=record("tags", tags=rows(TEXT, 1)),
)
DRIVER = record("name", name=TEXT, semanticVersion=TEXT, informationUri=URI, rules=rows(RULE))  # 3.19
NOTIFICATION = record(  # 3.58
    "message", message=MESSAGE, level={"enum": ["none", "note", "warning", "error"]}, descriptor=record("", id=TEXT)
)
INVOCATION = record(  # 3.20
    "executionSuccessful", executionSuccessful={"type": "boolean"}, toolExecutionNotifications=rows(NOTIFICATION)
)
RUN = record(  # 3.14
    "tool",
    invocations=rows(INVOCATION),
    tool=record("driver", driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": record("", uri=TEXT, description=MESSAGE)},
    results=rows(RESULT),
)
SCHEMA = record("version runs", **{"$schema": TEXT, "version": {"const": "2.1.0"}, "runs": rows(RUN)})  # 3.13


OFFICIAL = Path(__file__).parent / "sarif_schema" / "sarif-schema-2.1.0.json"
OFFICIAL_SHA256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""The schema that OASIS publishes, and its hash, so that nobody changes it here: see the README beside it."""


def document(tmp_path: Path, *findings: object) -> dict:
    data = json.loads(render("sarif", outcome(tmp_path, findings), Look()))
    jsonschema.validate(data, SCHEMA)
    return data


def official_schema() -> jsonschema.Draft4Validator:
    text = OFFICIAL.read_bytes()
    assert sha256(text).hexdigest() == OFFICIAL_SHA256
    return jsonschema.Draft4Validator(json.loads(text))


def test_official_schema_refuses_what_is_none(tmp_path: Path) -> None:
    data = document(tmp_path, finding())
    data["runs"][0]["results"][0]["levle"] = "error"
    assert not official_schema().is_valid(data)


def test_official_schema_accepts_every_shape_of_finding(tmp_path: Path) -> None:
    bare = finding(rule="stale-baseline", origin=None, related=(), fix=None, study=None, settings=(), notes=(), help=())
    official_schema().validate(document(tmp_path))
    official_schema().validate(document(tmp_path, finding(), finding(severity=Severity.info), bare))


def test_official_schema_accepts_a_real_check(project: Write, check: Command) -> None:
    """With a rule of ours, a rule that has no page, and a run that says that it is not complete."""
    project({"sweep.yaml": SWEEP + "methd: 1\n", "train.py": PROGRAM})
    data = json.loads(check(".", "-f", "sarif", "--gpu", "RTX 4090").out)
    assert {result["ruleId"] for result in data["runs"][0]["results"]} == {"too-large", "invalid-config"}
    official_schema().validate(data)
    late = json.loads(check(".", "-f", "sarif", "--gpu", "RTX 4090", "--time-limit", "0.000001").out)
    assert late["runs"][0]["invocations"][0]["executionSuccessful"] is False
    official_schema().validate(late)


def test_rules_have_their_page_and_what_they_are_about(tmp_path: Path) -> None:
    found = replace(outcome(tmp_path, (finding(),)), rules=dict(registry.rules()))
    [rule] = json.loads(render("sarif", found, Look()))["runs"][0]["tool"]["driver"]["rules"]
    assert rule["helpUri"] == f"{RULE_PAGES}/gpu-memory-exceeded.md"
    assert rule["help"]["markdown"].startswith("# gpu-memory-exceeded\n\n")
    assert rule["helpUri"] in rule["help"]["text"]
    assert rule["properties"]["tags"] == ["gpu-memory"]


def test_no_findings_is_a_run_with_empty_results(tmp_path: Path) -> None:
    [run] = document(tmp_path)["runs"]
    assert run["results"] == []


def test_result(tmp_path: Path) -> None:
    [run] = document(tmp_path, finding())["runs"]
    [result] = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "gpu-memory-exceeded"
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 4, "startColumn": 21, "endLine": 4, "endColumn": 23}
    related = result["relatedLocations"][0]["physicalLocation"]
    assert related["artifactLocation"]["uri"] == "conf%20dir/train.py"
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "parameters.batch_size.values.2"


def test_fix_says_that_it_is_unsafe(tmp_path: Path) -> None:
    safe = finding(fix=Fix("write 32", Safety.safe, finding().fix.edits))
    [run] = document(tmp_path, finding(), safe)["runs"]
    first, second = (result["fixes"][0] for result in run["results"])
    assert "unsafe" in first["description"]["text"]
    assert second["description"]["text"] == "write 32"
    assert first["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "16"}


def test_fingerprint_survives_moved_lines_and_tells_repetitions_apart(tmp_path: Path) -> None:
    def prints(*findings: object) -> list[str]:
        [run] = document(tmp_path, *findings)["runs"]
        return [result["partialFingerprints"]["preflight/v1"] for result in run["results"]]

    moved = finding(origin=Origin("sweep.yaml", Span(0, 7), finding().origin.route), message="another figure")
    other = finding(rule="gpu-memory-tight", severity=Severity.warning)
    assert prints(finding()) == prints(moved)
    assert len(set(prints(finding(), finding(), other))) == 3


def test_finding_without_a_place_has_no_location(tmp_path: Path) -> None:
    [run] = document(tmp_path, finding(origin=None, related=(), fix=None))["runs"]
    assert "locations" not in run["results"][0]


def test_what_has_to_hold_is_a_notification(tmp_path: Path) -> None:
    batch = Assumption("train.batch_size", 8, Standing.by_name, "a name suggests it")
    one = study(Estimates(replace(device(8 * GIB), verdict="fits-if", assumptions=(batch,)), None))
    document = json.loads(render("sarif", outcome(tmp_path, (), (one,)), Look()))
    jsonschema.validate(document, SCHEMA)
    [invocation] = document["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is True
    [note] = invocation["toolExecutionNotifications"]
    assert (note["level"], note["descriptor"]["id"]) == ("note", "fits-if")
    assert "train.batch_size = 8 (a name suggests it)" in note["message"]["text"]
    assert document["runs"][0]["results"] == []
