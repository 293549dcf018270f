"""Draws the conclusion from the evidence: which limit was hit, when, and which figures in the logs mislead."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from preflight.postmortem import end_causes, gpu_causes, host_causes
from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.diagnosis import RANK, Diagnosis, Misleading
from preflight.postmortem.evidence import Evidence
from preflight.vocabulary.findings import Confidence

WEAK = frozenset({"killed", "ended"})
"""Limits that only report an end; another diagnosis explains it better."""


class Conclusion(Struct, frozen=True):
    """Diagnoses, the gravest first, and figures that mislead."""

    causes: tuple[Diagnosis, ...]
    misleading: tuple[Misleading, ...]
    notes: tuple[str, ...] = ()


def conclude(found: CollectedEvidence) -> Conclusion:
    """Diagnoses from the evidence of all logs."""
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
        notes.append(f"{found.left_out:,} further messages of the same kinds were counted but not analysed")
    return Conclusion(tuple(kept), misleading, tuple(notes))


def _followed(cause: Diagnosis, left: list[Diagnosis]) -> Diagnosis:
    """The diagnosis with a note about its consequences. Signals and cancelled steps without a reason are left out."""
    known = [one for one in left if one.confidence is Confidence.high]
    after = [f"followed by: {one.title} ({one.places[0]})" for one in known if one.places]
    return replace(cause, notes=(*cause.notes, *after))


def of_job(found: CollectedEvidence, job: str) -> CollectedEvidence:
    """The evidence without that of other SLURM jobs."""
    base = job.partition("_")[0].partition(".")[0]
    return replace(found, evidence=tuple(one for one in found.evidence if _names(one) in (None, base)))


def _names(one: Evidence) -> str | None:
    return getattr(one, "job", None)
