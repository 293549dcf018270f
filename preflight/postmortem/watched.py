"""Explains how a watched run ended: its records become evidence, and the diagnoses are those of any other log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from preflight.postmortem.collect import CollectedEvidence, collect_text
from preflight.postmortem.conclude import conclude
from preflight.postmortem.diagnosis import Diagnosis
from preflight.postmortem.evidence import Evidence, GpuOom, KernelKill, Killed, LogPlace
from preflight.vocabulary.watched import WatchedRun

SOURCE = "preflight run"


def explained(run: WatchedRun, group: str = "") -> Diagnosis | None:
    """The limit that ended a run; None if it ended for another reason than memory, or nobody can tell.

    `group`: the path of its control group, which tells whose limit it was.
    """
    if run.end in ("completed", "stopped"):
        return None
    error = run.error
    text = f"{error.name}: {error.text}\n" if error is not None and error.memory else ""
    found = collect_text(SOURCE, text)
    evidence = (*found.evidence, *_evidence(run, group, found))
    causes = conclude(replace(found, evidence=evidence)).causes
    if not causes:
        return None
    phase = _phase(run)
    first = causes[0]
    return first if first.when.phase or not phase else replace(first, when=replace(first.when, phase=phase))


def _evidence(run: WatchedRun, group: str, found: CollectedEvidence) -> Iterator[Evidence]:
    """What the kernel's counters and the exit status say beside the error's own words."""
    host = run.host
    full = host.limit is not None and (host.peak or 0) > 0.9 * host.limit
    scope: Literal["cgroup", "node"] = "cgroup" if full else "node"
    if host.kills:
        yield KernelKill(
            LogPlace(SOURCE, 0), "a process of the run", None, "cgroup", cgroup=group, usage=host.peak, limit=host.limit
        )
    elif run.status in (-9, 137) and run.host_was_full:
        yield KernelKill(
            LogPlace(SOURCE, 0),
            "a process of the run",
            None,
            scope,
            cgroup=group,
            usage=host.peak,
            limit=host.limit,
        )
    elif run.status in (-9, 137):
        yield Killed(LogPlace(SOURCE, 0))
    if run.end == "oom" and not found.of(GpuOom):
        yield GpuOom(LogPlace(SOURCE, 0), "cuda")


def _phase(run: WatchedRun) -> str:
    """The phase of the rank that failed, else of the first one."""
    failed = [one for one in run.ranks if one.error is not None and one.error.memory] or list(run.ranks)
    phase = next((one.error.phase if one.error is not None else one.phase for one in failed), "")
    return "" if phase == "step" else phase
