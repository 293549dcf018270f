"""What the conclusion is made of: causes, when they struck, and figures that mislead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from preflight.postmortem.evidence import Frame, GpuOom, Place, Trial
from preflight.vocabulary.findings import Confidence

Limit = Literal[
    "cgroup", "node", "gpu", "gpu-shared", "gpu-fragmented", "gpu-fraction", "shm", "refused", "processes", "time",
    "node-failure", "worker", "killed", "ended",
]  # fmt: skip
"""Which limit was hit: the job's (container's, session's) memory; the node's; the GPU's, alone, beside other processes,
by fragmentation, by a fraction of its own; /dev/shm; memory that the system refused; processes; time. Or none of them:
the node failed, a worker crashed, a kill that nobody explains, SLURM ended it."""

RANK: tuple[Limit, ...] = (
    "cgroup", "node", "time", "node-failure", "shm", "gpu-shared", "gpu-fraction", "gpu-fragmented", "gpu", "refused",
    "processes", "worker", "killed", "ended",
)  # fmt: skip
"""What ends a job for good comes first; the last two only report an end that something else explains better."""

GPU_LIMITS = frozenset({"gpu", "gpu-shared", "gpu-fragmented", "gpu-fraction"})
HOST_LIMITS = frozenset({"cgroup", "node", "shm", "refused", "killed"})


@dataclass(frozen=True)
class When:
    """The moment in the run: a phase as estimates name it (""), the user's frame, and the last progress shown."""

    phase: str = ""
    frame: Frame | None = None
    beneath: Frame | None = None
    last: Place | None = None


@dataclass(frozen=True)
class Seen:
    """Observed bytes of one node. `limit` is what could be used; `usage` what the cgroup counted; the rest one
    process's, or one task's."""

    limit: int | None = None
    usage: int | None = None
    anon: int | None = None
    shmem: int | None = None
    victim: int | None = None
    largest_task: int | None = None


@dataclass(frozen=True)
class Cause:
    """One thing that went wrong: `title` says it in a line, `notes` say more, `help` what to do or look at next."""

    limit: Limit
    title: str
    confidence: Confidence
    places: tuple[Place, ...]
    count: int = 1
    when: When = When()
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    gpu: GpuOom | None = None
    seen: Seen | None = None
    trial: Trial | None = None


@dataclass(frozen=True)
class Misleading:
    """A figure in the logs that is easily taken for something else."""

    place: Place
    figure: str
    why: str


@dataclass(frozen=True)
class Conclusion:
    """Causes, the gravest first, and figures that mislead."""

    causes: tuple[Cause, ...]
    misleading: tuple[Misleading, ...]
    notes: tuple[str, ...] = ()
