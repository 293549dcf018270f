"""JUnit's XML, which build services read as the result of tests: a test case for each study, and for each other file.

An error is a failure of its case. Warnings and remarks are in the case's output and fail nothing, as with `--fail-on
error`. A study without a verdict is skipped, because it would look as if it fitted. No standard defines the format;
this is the part that Jenkins, GitLab and Azure Pipelines read alike: one `failure` or `error` a case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as XML

from msgspec import Struct, field

from preflight.reports.not_known import reason_of
from preflight.reports.places import place
from preflight.reports.rules import address
from preflight.reports.streams import clean
from preflight.reports.style import Look
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.words import plural

_INTERNAL = "internal-error"
_NO_CHARACTERS = re.compile("[\ufffe\uffff]")
"""Code points that XML 1.0 does not allow; `clean` escapes all other ones that it does not."""


class _Case(Struct):
    """A study or a file with its findings; `skipped`: why nobody judged it."""

    name: str
    kind: str
    findings: list[Finding] = field(default_factory=list)
    skipped: str = ""


def render(outcome: Outcome, look: Look) -> str:
    """The document as text, all characters in ASCII."""
    root = XML.Element("testsuites", name="preflight")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for report in outcome.reports:
        folder = outcome.tracked(report, ".")
        suite = XML.SubElement(root, "testsuite", name="preflight" if folder == "." else _text(folder))
        cases = [_element(outcome, report, case) for case in _cases(outcome, report)]
        suite.extend(cases)
        found = {
            "tests": len(cases),
            "failures": sum(case.find("failure") is not None for case in cases),
            "errors": sum(case.find("error") is not None for case in cases),
            "skipped": sum(case.find("skipped") is not None for case in cases),
        }
        _count(suite, found)
        totals = {name: count + found[name] for name, count in totals.items()}
    _count(root, totals)
    XML.indent(root)
    data: bytes = XML.tostring(root, encoding="us-ascii", xml_declaration=True)
    return data.decode("ascii") + "\n"


def _count(element: XML.Element, counts: dict[str, int]) -> None:
    for name, count in counts.items():
        element.set(name, str(count))


def _cases(outcome: Outcome, report: Report) -> list[_Case]:
    """The studies, then the files that no study reads and those with findings of their own, then the check itself."""
    studies = []
    for result in report.studies:
        skipped = result.unjudged.words if result.unjudged is not None else ""
        if not skipped and result.space.worst.estimates.verdict == "unknown":
            skipped = f"no verdict: {reason_of(result) or 'no GPU is stated'}"
        path = outcome.tracked(report, result.study.paths[0])
        studies.append(_Case(path, ".".join(result.study.dialects), skipped=skipped))
    read = {path for result in report.studies for path in result.study.paths}
    others = {path: _Case(outcome.tracked(report, path), "file") for path in report.files if path not in read}
    check = _Case("check", "preflight")
    for finding in report.findings:
        if finding.study is not None:
            studies[finding.study].findings.append(finding)
        elif finding.origin is not None:
            path = finding.origin.path
            others.setdefault(path, _Case(outcome.tracked(report, path), "file")).findings.append(finding)
        else:
            check.findings.append(finding)
    return [*studies, *(others[path] for path in sorted(others)), *([check] if check.findings else [])]


def _element(outcome: Outcome, report: Report, case: _Case) -> XML.Element:
    element = XML.Element("testcase", name=_text(case.name), classname=_text(f"preflight.{case.kind}"))
    if case.kind != "preflight":
        element.set("file", _text(case.name))
    failed = [one for one in case.findings if one.severity is Severity.error]
    if failed:
        broken = any(one.rule == _INTERNAL for one in failed)
        more = f" (and {plural(len(failed) - 1, 'more error')})" if len(failed) > 1 else ""
        sign = XML.SubElement(element, "error" if broken else "failure", type=failed[0].rule)
        sign.set("message", _text(f"{failed[0].message}{more}"))
        sign.text = _lines(outcome, report, failed)
    elif case.skipped:
        XML.SubElement(element, "skipped", message=_text(case.skipped))
    told = [one for one in case.findings if one.severity is not Severity.error]
    if told:
        XML.SubElement(element, "system-out").text = _lines(outcome, report, told)
    return element


def _lines(outcome: Outcome, report: Report, findings: Sequence[Finding]) -> str:
    """Each finding with its place, its notes and the address of its rule."""
    lines = []
    for finding in findings:
        where = ""
        if finding.origin is not None:
            found = place(report, finding.origin)
            where = outcome.tracked(report, finding.origin.path) + (f":{found.line}:{found.column}" if found else "")
        head = f"{where}: " if where else ""
        lines.append(f"{head}{finding.severity.value}[{finding.rule}] {finding.message}")
        url = address(outcome, finding.rule)
        lines += [f"  {words}" for words in (*finding.notes, *finding.help, *([url] if url else []))]
    return "\n".join(map(_text, lines))


def _text(text: str) -> str:
    """One line that XML can hold."""
    return _NO_CHARACTERS.sub("�", clean(text))
