"""Recorded runs as text: the list, and one run beside its law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.store.records import KeptRun
from preflight.vocabulary.watched import TIERS
from preflight.vocabulary.words import gib, plural

BAR = 30
LAW = "law's peak"


def listed(runs: Sequence[KeptRun]) -> Iterator[str]:
    """A line for each run, the newest first."""
    yield f"{'run':<10}{'started':<18}{'end':<11}{'steps':>7}{'peak':>11}{'law':>11}  job"
    for run in runs:
        peak, law = run.peak("reserved"), _law(run, "reserved")
        end = run.outcome + (f" {run.oom_phase}" if run.oom_phase else "")
        yield (
            f"{run.id[:8]:<10}{run.started[:16].replace('T', ' '):<18}{end[:10]:<11}{run.steps:>7}"
            f"{gib(peak) if peak else '-':>11}{gib(law[1]) if law else '-':>11}  {describe(run.job)}"
        )


def shown(run: KeptRun) -> Iterator[str]:
    """One run: how it ended, its peaks by phase as bars, the law's figures beside them."""
    of = run.machine
    words = (of.gpu, f"torch {of.torch}" if of.torch else "", f"CUDA {of.cuda}" if of.cuda else "")
    where = ", ".join(word for word in words if word)
    took = f"{plural(run.steps, 'step')}, {run.seconds:.0f} s"
    yield f"run {run.id[:8]}: {run.outcome} after {took}{f' on {where}' if where else ''}"
    yield f"  job: {describe(run.job)}"
    if run.oom_phase:
        asked = f", at a request of {gib(run.oom_request)}" if run.oom_request else ""
        yield f"  memory ran out in {run.oom_phase}{asked}"
    for tier in TIERS:
        found: dict[str, int] = {}
        for one in run.peaks:
            if one.tier == tier:
                found[one.phase] = max(found.get(one.phase, 0), one.bytes)
        if not found:
            continue
        law = _law(run, tier)
        most = max([*found.values(), *(law or ())])
        yield f"  {tier}"
        for phase, size in found.items():
            yield f"    {phase:<12}{gib(size):>11}  {'#' * max(1, round(BAR * size / most))}"
        if law is not None:
            low, expected, high = law
            bar = "=" * max(1, round(BAR * expected / most))
            yield f"    {LAW:<12}{gib(expected):>11}  {bar} ({gib(low)} to {gib(high)})"
    for what, size in run.host.items():
        yield f"  host, {what.replace('_', ' ')}: {gib(size)}"


def _law(run: KeptRun, tier: str) -> tuple[int, int, int] | None:
    return next((one.law for one in run.peaks if one.tier == tier and one.law is not None), None)


def describe(job: Mapping[str, Any] | None) -> str:
    """A job in some words."""
    if job is None:
        return "not read"
    model, train = job.get("model", {}), job.get("train", {})
    name = str(model.get("architecture") or model.get("target") or model.get("name") or model.get("path") or "a model")
    parts = [name, f"batch {train['batch_size']}" if "batch_size" in train else ""]
    parts += [f"x {train['seq_len']}" if "seq_len" in train else "", str(train.get("precision", ""))]
    return " ".join(part for part in parts if part)
