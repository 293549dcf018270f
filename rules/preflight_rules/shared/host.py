"""Shared by the rules about the host memory of a node: the loaders in words, the setting to blame, the finding."""

from __future__ import annotations

from preflight.api import (
    Case,
    Finding,
    HostEstimate,
    Job,
    Origin,
    Proposal,
    Rule,
    gib,
    host_of,
    model_name,
    plural,
    sample_bytes,
    sum_of,
    written,
)
from preflight_rules.shared import loaders
from preflight_rules.shared.slurm import node_limit

FIELDS = (
    "train.batch_size", "data.workers", "data.prefetch", "validation.batch_size", "data.validation_workers",
    "data.sample_bytes", "data.in_memory_bytes",
)  # fmt: skip
GIVEN = ("data.sample_bytes", "data.in_memory_bytes")
"""Properties of the data. Loaders cannot change them, so they are never blamed first."""


def leverage(case: Case) -> list[tuple[str, Origin]]:
    """The written settings that decide the host memory, the one whose halving saves most first.

    Fields that are derived from the same text count once.
    """
    host, found, seen = host_of(case), [], set()
    for order, field in enumerate(FIELDS):
        origin, value = case.origin(field), case.job.get(field)
        if host is None or origin is None or origin in seen or not isinstance(value, int) or value < 2:
            continue
        seen.add(origin)
        after = loaders.host_after(case, {field: value // 2}) if written(case, field) else None
        saved = 0 if after is None else host.per_node.expected - after.per_node.expected
        found.append((field in GIVEN, -saved, order, field, origin))
    return [(field, origin) for *_, field, origin in sorted(found, key=lambda lever: lever[:3])]


def places(case: Case) -> tuple[Origin | None, tuple[tuple[Origin, str], ...]]:
    """The setting that saves most, and the other settings with their values as text."""
    found = [(origin, f"{field} = {case.job.get(field)}") for field, origin in leverage(case)]
    request = case.study.request
    if request is not None and "memory" in request.origins:
        found.append((request.origins["memory"], f"--mem gives {gib(_int(request.memory))} per node"))
    return (found[0][0], tuple(found[1:])) if found else (None, ())


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def describe_loaders(job: Job) -> str:
    """The numbers that decide the host memory: "batch 64, 16 workers, prefetch 2, one sample 1.17 MiB, 4 ranks"."""
    data = job.data
    batch = "?" if job.train.batch_size is None else str(job.train.batch_size)
    words = [f"batch {batch}", "workers unknown" if data.workers is None else plural(data.workers, "worker")]
    words.append(f"prefetch {'?' if data.prefetch is None else data.prefetch}")
    sample = sample_bytes(job)[0]
    words.append("sample size unknown" if sample is None else f"one sample {gib(sample)}")
    if data.validation_workers is not None:
        validation = "?" if job.validation.batch_size is None else str(job.validation.batch_size)
        words.append(f"validation batch {validation} with {plural(data.validation_workers, 'worker')}")
    if data.persistent_workers:
        words.append("persistent workers")
    if job.parallel.ranks_per_node not in (1, None):
        words.append(f"{job.parallel.ranks_per_node} ranks per node")
    return ", ".join(words)


def too_much(case: Case) -> HostEstimate | None:
    """The host estimate if it exceeds, or may exceed, the memory of the job."""
    host = host_of(case)
    return host if host is not None and host.verdict in ("exceeds", "at-risk") else None


def spikes(case: Case, host: HostEstimate) -> bool:
    """Whether training alone fits, and does not fit with the validation loaders."""
    if host.train_only is None or host.limit is None or case.job.data.validation_overlaps:
        return False
    return host.train_only <= host.limit


def offloaded(case: Case) -> HostEstimate | None:
    """The host estimate if it does not fit and is mostly offloaded states: `offload-exceeds-host` reports it."""
    host = host_of(case)
    if host is None or host.verdict not in ("exceeds", "at-risk"):
        return None
    return host if host.breakdown.get("offload", 0) * 2 >= host.per_node.expected else None


def asked_for(case: Case, host: HostEstimate) -> bool:
    """Whether the SLURM request is the limit and the node may have more: then `slurm-memory-too-low` reports it."""
    if case.study.request is None or host.limited_by != "memory_limit" or host.limit is None:
        return False
    node = node_limit(case)
    return node is None or node > host.limit


def parts_notes(host: HostEstimate) -> tuple[str, ...]:
    """Notes that prove a host figure: its parts, and the notes of the estimate."""
    return (f"the parts: {sum_of(host.breakdown, limit=12)}", *host.notes)


def limit_words(host: HostEstimate) -> str:
    """The source of the limit, in words."""
    words = {"memory_limit": "the job's limit", "node_memory": "the node's memory"}
    return words.get(host.limited_by, host.limited_by.replace("node_memory", "the node's memory"))


def host_finding(
    rule: Rule,
    case: Case,
    host: HostEstimate,
    message: str,
    proposals: tuple[Proposal, ...],
    label: str,
    headline: str,
) -> Finding:
    """A finding of `rule` about host memory that does not fit the node. `headline`: the message without figures."""
    origin, related = places(case)
    return rule.finding(
        message,
        origin,
        estimate=host,
        settings=FIELDS,
        related=related,
        label=label,
        headline=headline,
        notes=parts_notes(host),
        help=(
            "use fewer workers, a smaller prefetch, or workers that do not persist: fewer samples are in flight, and "
            "the run stays the same",
        ),
        proposals=proposals,
    )


def doing(case: Case, host: HostEstimate) -> str:
    """The activity of the job at its peak, as text."""
    if host.peak != "load":
        return describe_loaders(case.job)
    ranks = case.job.parallel.ranks_per_node or 1
    load = "loads" if ranks == 1 else "load"
    return f"{plural(ranks, 'rank')} per node {load} the weights of {model_name(case.job)}"
