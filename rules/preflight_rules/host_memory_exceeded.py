from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, HostEstimate, Proposal, Rule, Value, gib, sum_of
from preflight_rules.shared import loaders
from preflight_rules.shared.host import (
    asked_for,
    describe_loaders,
    host_finding,
    limit_words,
    offloaded,
    spikes,
    too_much,
)
from preflight_rules.shared.programs import LOADER, SAMPLES, options


class HostMemoryExceeded(Rule):
    """The processes of a node need more host memory than the job may use, so they will be killed.

    Every DataLoader worker holds the batch that it collates, decoded samples, and freed heap memory that it does not
    return. Every loader keeps workers x prefetch batches in flight. A data set in memory is copied page by page into
    each worker, because Python writes its reference counts. All of this is multiplied by the ranks of the node. The
    message has the parts, the limit, and what sets the limit.

    The kernel or SLURM kills such a job without a traceback, often after hours. Tools that sample resident memory miss
    short peaks.

    The fix keeps the run the same: workers that do not persist, less prefetch, fewer workers, or a smaller batch with
    more accumulation steps. Every setting is halved once before any setting is halved twice. A smaller batch that
    changes the effective batch size is unsafe.
    """

    name = "host-memory-exceeded"
    summary = "The job needs more host memory than it may use on a node"
    tags = ("host-memory",)
    examples = (
        Example(
            "16 workers keep 33 batches of 256 MiB in flight",
            {"train.py": LOADER},
            fixed={"train.py": LOADER.replace("num_workers=16", "num_workers=8")},
            says=("batch 64", "16 workers", "the job may use 12 GiB"),
            options=options(12),
        ),
        Example("The same loader on a node with enough memory", {"train.py": LOADER}, finds=0, options=options(64)),
        Example("No limit is known", {"train.py": LOADER}, finds=0, options={"set": SAMPLES}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        host = too_much(case)
        if host is None or spikes(case, host) or asked_for(case, host) or reported_elsewhere(case, host):
            return
        message = (
            f"{describe_loaders(case.job)} need {gib(host.per_node.expected)} of host memory per node "
            f"({gib(host.per_node.low)} to {gib(host.per_node.high)}; {sum_of(host.breakdown)}), and "
            f"the job may use {gib(host.limit or 0)} ({limit_words(host)})"
        )
        label = "too much for the memory of the node"
        needs = "needs" if host.verdict == "exceeds" else "may need"
        headline = f"the job {needs} more host memory than the node gives: {describe_loaders(case.job)}"
        yield host_finding(self, case, host, message, loaders.loader_proposals(case), label, headline)

    def proposals_for(self, case: Case, field: str, value: Value) -> Iterator[Proposal]:
        if field in ("data.workers", "data.prefetch", "data.validation_workers") and isinstance(value, int):
            yield from loaders.solved_loader(case, field, value)


def reported_elsewhere(case: Case, host: HostEstimate) -> bool:
    """Whether another rule reports it: `shm-too-small` or `offload-exceeds-host`."""
    return host.limited_by == "/dev/shm" or offloaded(case) is not None
