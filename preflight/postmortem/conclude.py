"""From evidence to a conclusion: which limit was hit, when, and what in the logs misleads."""

from __future__ import annotations

from dataclasses import replace

from preflight.postmortem import end_causes, gpu_causes, host_causes
from preflight.postmortem.cause import RANK, Cause, Conclusion
from preflight.postmortem.collect import Found
from preflight.postmortem.evidence import Evidence
from preflight.postmortem.moments import at
from preflight.vocabulary.findings import Confidence

WEAK = frozenset({"killed", "ended"})
"""Ends that something else explains better."""


def conclude(found: Found) -> Conclusion:
    """The causes, the gravest first."""
    killed = host_causes.memory(found)
    found_causes = [
        *([killed] if killed is not None else []),
        *end_causes.causes(found, killed is not None),
        *gpu_causes.causes(found),
    ]
    causes = sorted(found_causes, key=lambda cause: RANK.index(cause.limit))
    strong = [cause for cause in causes if cause.limit not in WEAK]
    left = [cause for cause in causes if cause.limit in WEAK]
    kept = strong or left[:1]
    if strong and left:
        kept = [_followed(strong[0], left), *strong[1:]]
    misleading = (*host_causes.misleading(found), *(one for cause in kept for one in gpu_causes.misleading(cause)))
    notes = []
    if found.left_out:
        notes.append(f"{found.left_out:,} further messages of the same kinds were counted, not read")
    return Conclusion(tuple(kept), misleading, tuple(notes))


def _followed(cause: Cause, left: list[Cause]) -> Cause:
    """What followed and is sure; signals and cancelled steps are only how the end spreads."""
    known = [one for one in left if one.confidence is Confidence.high]
    after = [f"followed by: {one.title} ({at(one.places[0])})" for one in known if one.places]
    return replace(cause, notes=(*cause.notes, *after))


def of_job(found: Found, job: str) -> Found:
    """Only what concerns one SLURM job: evidence that names another one is left out."""
    base = job.partition("_")[0].partition(".")[0]
    return replace(found, evidence=tuple(one for one in found.evidence if _names(one) in (None, base)))


def _names(one: Evidence) -> str | None:
    return getattr(one, "job", None)
