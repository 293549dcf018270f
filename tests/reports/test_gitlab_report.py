"""GitLab's Code Quality report: the fields that GitLab asks for, and fingerprints that stay."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from msgspec.structs import replace
from outcomes import finding, outcome

from preflight.reports import render
from preflight.reports.style import Look
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.values import Origin, Span

TEXT = {"type": "string", "minLength": 1}
LINE = {"type": "integer", "minimum": 1}


def record(required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


SCHEMA = {  # https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format; `content` is Code Climate's
    "type": "array",
    "items": record(
        "description check_name fingerprint severity location",
        description=TEXT,
        check_name=TEXT,
        fingerprint={"type": "string", "pattern": "^[0-9a-f]{32}$"},
        severity={"enum": ["info", "minor", "major", "critical", "blocker"]},
        location=record(
            "path lines",
            path={"type": "string", "pattern": r"^[^/][^\\]*$"},
            lines=record("begin end", begin=LINE, end=LINE),
        ),
        content=record("body", body=TEXT),
    ),
}


def entries(tmp_path: Path, *findings: object) -> list[dict]:
    data = json.loads(render("gitlab", outcome(tmp_path, findings), Look()))
    jsonschema.validate(data, SCHEMA)
    return data


def test_no_findings_is_an_empty_list(tmp_path: Path) -> None:
    assert entries(tmp_path) == []


def test_entry(tmp_path: Path) -> None:
    [entry] = entries(tmp_path, finding())
    assert entry["description"] == "gpu-memory-exceeded: needs 40 GiB of 24 GiB"
    assert (entry["check_name"], entry["severity"]) == ("gpu-memory-exceeded", "critical")
    assert entry["location"] == {"path": "sweep.yaml", "lines": {"begin": 4, "end": 4}}
    assert "use a smaller batch" in entry["content"]["body"]


def test_severities(tmp_path: Path) -> None:
    found = entries(tmp_path, *(finding(severity=one) for one in (Severity.error, Severity.warning, Severity.info)))
    assert [entry["severity"] for entry in found] == ["critical", "minor", "info"]


def test_finding_without_a_place_is_at_the_first_file(tmp_path: Path) -> None:
    [entry] = entries(tmp_path, finding(origin=None, related=(), fix=None, notes=(), help=()))
    assert entry["location"] == {"path": "sweep.yaml", "lines": {"begin": 1, "end": 1}}


def test_paths_start_at_the_checkout(tmp_path: Path) -> None:
    inner = tmp_path / "sub"
    inner.mkdir()
    found = replace(outcome(inner, (finding(),)), checkout=tmp_path.resolve())
    [entry] = json.loads(render("gitlab", found, Look()))
    assert entry["location"]["path"] == "sub/sweep.yaml"


def test_fingerprint_survives_moved_lines_and_other_figures_and_tells_repetitions_apart(tmp_path: Path) -> None:
    moved = finding(origin=Origin("sweep.yaml", Span(0, 7), finding().origin.route), message="another figure")
    other = finding(rule="gpu-memory-tight", severity=Severity.warning)
    [before], [after] = entries(tmp_path, finding()), entries(tmp_path, moved)
    assert before["fingerprint"] == after["fingerprint"]
    assert len({entry["fingerprint"] for entry in entries(tmp_path, finding(), finding(), other)}) == 3
