"""The results of a post-mortem: diagnoses, each with the limit that was hit, and figures that mislead."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct, field

from preflight.postmortem.circumstances import LoggedMoment
from preflight.postmortem.evidence import GpuOom, LogPlace, Trial
from preflight.vocabulary.findings import Confidence

Limit = Literal[
    "cgroup", "node", "time", "node-failure", "shm", "gpu-shared", "gpu-fraction", "gpu-fragmented", "gpu", "refused",
    "files", "processes", "worker", "killed", "ended",
]  # fmt: skip
"""The limit that was hit. Memory: of the job (container, session), of the node, of the GPU; of the GPU because other
processes used it, because of fragmentation, or because of the program's own fraction; /dev/shm; memory that the system
refused. Then the number of open files, and of processes; time. Or no limit: the node failed, a worker crashed, a kill
without a known reason, SLURM ended the job."""

RANK: tuple[Limit, ...] = get_args(Limit)
"""The gravest first. The last two only report an end; another diagnosis explains it better."""

GPU_LIMITS = frozenset({"gpu", "gpu-shared", "gpu-fragmented", "gpu-fraction"})
HOST_LIMITS = frozenset({"cgroup", "node", "shm", "refused", "killed"})


class HostFigures(Struct, frozen=True):
    """Bytes on one node that the logs show.

    `limit`: what could be used; `usage`, `anon`, `shmem`: counted by the control group; `victim`: of the killed
    process; `largest_task`: of one SLURM task.
    """

    limit: int | None = None
    usage: int | None = None
    anon: int | None = None
    shmem: int | None = None
    victim: int | None = None
    largest_task: int | None = None


class Diagnosis(Struct, frozen=True):
    """One failure: `title` says it in one line, `notes` have details, `help` has the next steps."""

    limit: Limit
    title: str
    confidence: Confidence
    places: tuple[LogPlace, ...]
    count: int = 1
    when: LoggedMoment = field(default_factory=LoggedMoment)
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    gpu: GpuOom | None = None
    host: HostFigures | None = None
    trial: Trial | None = None


class Misleading(Struct, frozen=True):
    """A figure in the logs that is easily mistaken for the memory that the job needs."""

    place: LogPlace
    figure: str
    why: str
