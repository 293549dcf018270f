"""SARIF 2.1.0, as code-scanning services take it (OASIS sarif-v2.1.0; section numbers below are its)."""

from __future__ import annotations

import os
from urllib.parse import quote

from preflight import REPOSITORY, __version__
from preflight.reports import plain
from preflight.reports.contract import PlaceJson
from preflight.reports.not_known import no_job
from preflight.reports.rules import address, explanation, fingerprints, summary, tags
from preflight.reports.style import Look
from preflight.reports.summary import assumptions
from preflight.vocabulary.findings import Finding, Fix, Safety, Severity
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.values import Origin

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.error: "error", Severity.warning: "warning", Severity.info: "note"}


def document(outcome: Outcome) -> plain.Plain:
    """One run. Columns count code points (columnKind, 3.14.17); URIs are relative to SRCROOT (3.14.14)."""
    found = list(outcome.findings())
    rules = sorted({finding.rule for _, finding in found})
    prints = fingerprints(outcome, found)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "preflight",
                        "semanticVersion": __version__,
                        "informationUri": REPOSITORY,
                        "rules": [_rule(outcome, name) for name in rules],
                    }
                },
                "invocations": [_invocation(outcome)],
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"SRCROOT": {"description": {"text": "the root of the checked repository"}}},
                "results": [
                    _result(outcome, report, one, rules.index(one.rule), mark)
                    for (report, one), mark in zip(found, prints, strict=True)
                ],
            }
        ],
    }


def render(outcome: Outcome, look: Look) -> str:
    """The document as text."""
    return plain.written(document(outcome))


def _invocation(outcome: Outcome) -> plain.Plain:
    """Whether the run came to its end (3.20.14). What it had no time for, that no job was found, and what has to hold
    for jobs to fit, are notifications of it (3.20.21): no result, because nothing is wrong."""
    doubtful, fitting = assumptions(outcome)
    said = [
        *(("warning", "time-limit", words) for words in outcome.incomplete),
        *(("warning", "nothing-checked", words) for words in [no_job(outcome)] if words),
        *(("note", "not-plausible", words) for words in doubtful),
        *(("note", "fits-if", words) for words in fitting),
    ]
    notes: list[plain.Plain] = [
        {"level": level, "message": {"text": words}, "descriptor": {"id": name}} for level, name, words in said
    ]
    return {"executionSuccessful": not outcome.incomplete, **({"toolExecutionNotifications": notes} if notes else {})}


def _rule(outcome: Outcome, name: str) -> plain.Plain:
    """A rule with its page (3.49): viewers show `help.markdown` beside the finding, and filter by tags (3.8.2)."""
    line, page, url = summary(outcome, name), explanation(outcome, name), address(outcome, name)
    more = f"See {url}" if url else ""
    rule: plain.Plain = {
        "id": name,
        "name": name,
        "shortDescription": {"text": line},
        "fullDescription": {"text": page.split("\n\n")[0].replace("\n", " ") or line},
        "help": {
            "text": "\n\n".join(filter(None, [page or line, more])),
            "markdown": "\n\n".join(filter(None, [f"# {name}", line, page, f"[{name}]({url})" if url else ""])),
        },
    }
    if url:
        rule["helpUri"] = url
    if found := tags(outcome, name):
        rule["properties"] = {"tags": list(found)}
    return rule


def _result(outcome: Outcome, report: Report, finding: Finding, index: int, fingerprint: str) -> plain.Plain:
    text = "\n".join([finding.message, *finding.notes, *finding.help])
    result: plain.Plain = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "partialFingerprints": {"preflight/v1": fingerprint},
        "properties": {"confidence": finding.confidence.value, "settings": list(finding.settings)},
    }
    if finding.origin is not None:
        result["locations"] = [_location(outcome, report, finding.origin)]
    if finding.related:
        result["relatedLocations"] = [
            {**_location(outcome, report, origin), "id": number, "message": {"text": words}}
            for number, (origin, words) in enumerate(finding.related, 1)
        ]
    if finding.fix is not None:
        result["fixes"] = [_fix(outcome, report, finding.fix)]
    return result


def _location(outcome: Outcome, report: Report, origin: Origin) -> plain.Plain:
    artifact = _artifact(outcome.tracked(report, origin.path))
    region = _region(plain.at(outcome, report, origin))
    location: plain.Plain = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if origin.route:  # the key's own path, which stays the same when lines move (3.33)
        location["logicalLocations"] = [{"fullyQualifiedName": ".".join(map(str, origin.route)), "kind": "member"}]
    return location


def _artifact(path: str) -> plain.Plain:
    """The bytes of a name that are not UTF-8 are percent-encoded as all others."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        name = path.encode("utf-8", "replace")
    return {"uri": quote(name), "uriBaseId": "SRCROOT"}


def _region(found: PlaceJson) -> plain.Plain:
    return {
        "startLine": found["line"],
        "startColumn": found["column"],
        "endLine": found["end_line"],
        "endColumn": found["end_column"],
    }


def _fix(outcome: Outcome, report: Report, fix: Fix) -> plain.Plain:
    """A fix by file. The description says if it is unsafe, because SARIF has no field for it."""
    changes: dict[str, list[plain.Plain]] = {}
    for edit in fix.edits:
        region = _region(plain.edit(outcome, report, edit))
        replacement: plain.Plain = {"deletedRegion": region, "insertedContent": {"text": edit.text}}
        changes.setdefault(outcome.tracked(report, edit.path), []).append(replacement)
    unsafe = "" if fix.safety is Safety.safe else " (unsafe: it changes the run)"
    return {
        "description": {"text": fix.title + unsafe},
        "artifactChanges": [
            {"artifactLocation": _artifact(path), "replacements": replacements}
            for path, replacements in changes.items()
        ],
    }
