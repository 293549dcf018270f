"""JUnit's XML: a case for each study and each other file, and what makes it fail."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
from msgspec.structs import replace
from outcomes import GIB, device, finding, host, outcome, study

from preflight.reports import render
from preflight.reports.style import Look
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome
from preflight.vocabulary.values import Cause, Origin, Span, Unknown


def suites(found: Outcome) -> XML.Element:
    root = XML.fromstring(render("junit", found, Look()))
    assert root.tag == "testsuites"
    for element in (root, *root.iter("testsuite")):
        for kind in ("failure", "error", "skipped"):
            assert int(element.get(f"{kind}s" if kind != "skipped" else kind, "")) == len([*element.iter(kind)])
        assert int(element.get("tests", "")) == len([*element.iter("testcase")])
    return root


@pytest.mark.parametrize("severity", [Severity.warning, Severity.info])
def test_no_failure_without_an_error(tmp_path: Path, severity: Severity) -> None:
    root = suites(outcome(tmp_path, (finding(severity=severity),)))
    assert root.find(".//failure") is None
    assert f"{severity.value}[gpu-memory-exceeded] needs 40 GiB" in root.findtext(".//system-out", "")


def test_clean_study_is_a_case_that_passes(tmp_path: Path) -> None:
    [case] = suites(outcome(tmp_path)).iter("testcase")
    assert (case.get("name"), case.get("classname"), [*case]) == ("sweep.yaml", "preflight.wandb.program", [])


def test_error_fails_its_study_once(tmp_path: Path) -> None:
    root = suites(outcome(tmp_path, (finding(), finding(rule="another", message="second"))))
    [failure] = root.iter("failure")
    assert failure.get("message") == "needs 40 GiB of 24 GiB (and 1 more error)"
    assert failure.get("type") == "gpu-memory-exceeded"
    lines = (failure.text or "").splitlines()
    assert lines[0] == "sweep.yaml:4:21: error[gpu-memory-exceeded] needs 40 GiB of 24 GiB"
    assert "  use a smaller batch" in lines
    assert "sweep.yaml:4:21: error[another] second" in lines


def test_failure_is_that_of_its_own_study(tmp_path: Path) -> None:
    both = tuple(study(Estimates(device(40 * GIB), host(8 * GIB))) for _ in range(2))
    first, second = suites(outcome(tmp_path, (finding(study=1),), both)).iter("testcase")
    assert (first.find("failure") is None, second.find("failure") is None) == (True, False)


def test_files_that_no_study_reads_are_cases(tmp_path: Path) -> None:
    lost = finding(rule="invalid-config", origin=Origin("conf dir/train.py", Span(0, 1)), study=None, related=())
    found = outcome(tmp_path, (lost,), files=("sweep.yaml", "other.sh"))
    names = {case.get("name"): case.find("failure") is not None for case in suites(found).iter("testcase")}
    assert names == {"sweep.yaml": False, "other.sh": False, "conf dir/train.py": True}


def test_finding_without_a_place_is_a_case_of_the_check(tmp_path: Path) -> None:
    lost = finding(rule="time-limit", severity=Severity.warning, origin=None, study=None, related=(), fix=None)
    *_, case = suites(outcome(tmp_path, (lost,))).iter("testcase")
    assert (case.get("name"), case.get("file"), case.find("failure")) == ("check", None, None)


def test_own_fault_is_an_error_and_no_failure(tmp_path: Path) -> None:
    root = suites(outcome(tmp_path, (finding(rule="internal-error"),)))
    assert (root.find(".//error") is None, root.find(".//failure") is None) == (False, True)


@pytest.mark.parametrize(("capacity", "shown"), [(None, ["no verdict: no GPU is stated"]), (24 * GIB, [])])
def test_study_without_a_verdict_is_skipped(capacity: int | None, shown: list[str], tmp_path: Path) -> None:
    made = suites(outcome(tmp_path, (), (study(Estimates(device(8 * GIB, capacity), None)),)))
    assert [one.get("message") for one in made.iter("skipped")] == shown


def test_study_that_nobody_judged_is_skipped(tmp_path: Path) -> None:
    late = replace(study(Estimates(None, None)), unjudged=Unknown("it was not judged within 1 s", Cause.time_limit))
    [skipped] = suites(outcome(tmp_path, (), (late,))).iter("skipped")
    assert skipped.get("message") == "it was not judged within 1 s"


@pytest.mark.parametrize("text", ["\x00\x08\x1b[31m", "\ud800", "\uffff\ufffe", "<&\"'>]]>", "::error::x", "é\u202e漢"])
def test_any_text_gives_a_document(tmp_path: Path, text: str) -> None:
    found = outcome(tmp_path, (finding(message=text, notes=(text,)), finding(severity=Severity.info, message=text)))
    suites(found)
    assert re.search(r"[^\x20-\x7e\n]", render("junit", found, Look())) is None
