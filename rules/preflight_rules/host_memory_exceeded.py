from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, HostEstimate, Rule, gib, sum_of
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
    """The processes of one node need more host memory than the job may use: the kernel or SLURM will kill it.

    Every DataLoader worker holds the batch it collates, decoded samples and the heap they leave behind; every loader
    keeps workers x prefetch batches in flight; a data set in memory is copied page by page into each worker as Python
    touches its reference counts; ranks multiply all of it. The message has the parts, the limit and what sets it.

    It matters because the kernel kills without a traceback, often hours into the run, and tools that sample resident
    memory miss the spike.

    The fix keeps the run the same: workers that do not persist, less prefetch, fewer workers, a smaller batch where
    accumulation (or the framework's nominal batch) makes up for it. No setting is halved twice before the others were
    halved once. A batch whose product changes is offered as unsafe.
    """

    name = "host-memory-exceeded"
    summary = "The job needs more host memory than it may use on a node"
    examples = (
        Example(
            "16 workers keep 33 batches of 256 MiB in flight",
            {"train.py": LOADER},
            fixed={"train.py": LOADER.replace("num_workers=16", "num_workers=8")},
            says=("batch 64", "16 workers", "12 GiB may be used"),
            options=options(12),
        ),
        Example("The same loader on a node with enough memory", {"train.py": LOADER}, finds=0, options=options(64)),
        Example("No limit is known", {"train.py": LOADER}, finds=0, options={"set": SAMPLES}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        host = too_much(case)
        if host is None or spikes(case, host) or asked_for(case, host) or spoken_of(case, host):
            return
        message = (
            f"{describe_loaders(case.job)} need {gib(host.per_node.expected)} of host memory per node "
            f"({gib(host.per_node.low)} to {gib(host.per_node.high)}; {sum_of(host.breakdown)}), and "
            f"{gib(host.limit or 0)} may be used ({limit_words(host)})"
        )
        yield host_finding(self, case, host, message, loaders.loader_proposals(case), "too much for the node's memory")


def spoken_of(case: Case, host: HostEstimate) -> bool:
    """Whether a rule of its own speaks of what is too much: `shm-too-small`, `offload-exceeds-host`."""
    return host.limited_by == "/dev/shm" or offloaded(case) is not None
