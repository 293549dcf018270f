"""What output formats say of rules: their addresses, help and tags; and the identity of a finding."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable

from preflight import RULE_PAGES
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.outcome import Outcome, Report

OWN_PACKAGE = "preflight_rules"
"""The package of the rules whose pages are in preflight's own documentation."""


def address(outcome: Outcome, name: str) -> str:
    """Where the page of a rule is; "" if nobody says.

    A rule of another distribution states it (`Rule.url`). Rules of the check itself share one page.
    """
    rule = outcome.rules.get(name)
    if rule is None:
        return f"{RULE_PAGES}/index.md" if name in outcome.summaries else ""
    if rule.url:
        return rule.url
    return f"{RULE_PAGES}/{name}.md" if rule.__module__.partition(".")[0] == OWN_PACKAGE else ""


def summary(outcome: Outcome, name: str) -> str:
    """The rule's line."""
    return outcome.summaries.get(name) or name.replace("-", " ")


def explanation(outcome: Outcome, name: str) -> str:
    """The problem, why it matters and how to fix it, in Markdown; "" for a rule that has no page."""
    rule = outcome.rules.get(name)
    return inspect.cleandoc(rule.__doc__) if rule is not None and rule.__doc__ else ""


def tags(outcome: Outcome, name: str) -> tuple[str, ...]:
    """What a rule is about: `gpu-memory`, `slurm` and so on."""
    rule = outcome.rules.get(name)
    if rule is None:
        return ("preflight",) if name in outcome.summaries else ()
    return rule.tags


# --- identity ---------------------------------------------------------------------------------------------------------


def fingerprints(outcome: Outcome, findings: Iterable[tuple[Report, Finding]]) -> list[str]:
    """An identity for each finding, made of its rule, file and key, not of its line: it stays when code moves.
    Repetitions are numbered."""
    seen: dict[str, int] = {}
    found = []
    for report, finding in findings:
        route = finding.origin.route if finding.origin is not None else None
        path = outcome.tracked(report, finding.origin.path) if finding.origin is not None else ""
        key = "\0".join([finding.rule, path, ".".join(map(str, route)) if route else ",".join(finding.settings)])
        seen[key] = seen.get(key, 0) + 1
        found.append(hashlib.sha256(f"{key}\0{seen[key]}".encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return found
