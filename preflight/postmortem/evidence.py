"""Evidence: what one place of a log says, typed. Bytes are integers; None is "the text does not say"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, Union


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a log, counted from 1. `text` is the line as shown: cleaned, cut to a sane length."""

    path: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python traceback."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.path.rpartition('site-packages/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the kernel's task table; `pages` resident, `total_pages` of address space."""

    pid: int
    name: str
    pages: int
    total_pages: int


@dataclass(frozen=True)
class KernelKill:
    """The kernel's out-of-memory killer chose a process.

    `scope`: cgroup (a limit of a control group), node (the machine), policy (a cpuset or NUMA policy).
    `usage` and `limit` are the cgroup's, `anon` and `shmem` from its statistics.
    """

    place: Place
    victim: str
    pid: int | None
    scope: Literal["cgroup", "node", "policy"]
    cgroup: str = ""
    asked_by: str = ""
    total_vm: int | None = None
    anon_rss: int | None = None
    file_rss: int | None = None
    shmem_rss: int | None = None
    usage: int | None = None
    limit: int | None = None
    anon: int | None = None
    shmem: int | None = None
    ram_pages: int | None = None
    swap_free: int | None = None
    swap_total: int | None = None
    tasks: tuple[Task, ...] = ()
    job: str | None = None


@dataclass(frozen=True)
class StepKilled:
    """slurmstepd saw its cgroup's counter: `count` processes of a step were killed."""

    place: Place
    job: str | None
    step: str = ""
    count: int | None = None


@dataclass(frozen=True)
class MemoryExceeded:
    """SLURM itself found a job above its limit (no cgroup enforced it); bytes, None where the unit is unclear."""

    place: Place
    job: str | None
    used: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class JobEnded:
    """SLURM ended a job or step for a reason of its own."""

    place: Place
    job: str | None
    reason: Literal["time", "node-failure", "preempted", "cancelled"]
    node: str = ""
    when: str = ""


@dataclass(frozen=True)
class Accounting:
    """A row of sacct (or what seff says). `requested` bytes are `per` node or cpu ("" where not said).

    `largest_task` is MaxRSS, `average_task` AveRSS: sampled resident bytes of one task.
    """

    place: Place
    job: str
    step: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    requested: int | None = None
    per: Literal["node", "cpu", ""] = ""
    allocated: int | None = None
    largest_task: int | None = None
    average_task: int | None = None
    nodes: int | None = None
    cpus: int | None = None
    tasks: int | None = None
    elapsed: str = ""
    time_limit: str = ""
    name: str = ""
    submit_line: str = ""
    folder: str = ""

    @property
    def per_node(self) -> int | None:
        """Bytes that the job was given on each node, where the row tells."""
        nodes = self.nodes or 1
        if self.allocated is not None and (self.nodes is not None or not self.requested):
            return self.allocated // nodes
        if self.requested is None or self.requested == 0:
            return None
        if self.per == "node" or (self.per == "" and nodes == 1):
            return self.requested
        if self.per == "cpu" and self.cpus and self.cpus % nodes == 0:
            return self.requested * (self.cpus // nodes)
        return None


@dataclass(frozen=True)
class GpuOom:
    """A GPU allocation failed. `library` says who reported it; figures are PyTorch's where it did.

    `free` is the GPU's, `own` what the driver says of this process, `others` of others (pid, bytes). `in_use` is a
    process that the message does not call this one (containers number processes differently).
    """

    place: Place
    library: Literal["pytorch", "cuda", "cublas", "cudnn", "nccl", "jax", "tensorflow"]
    device: int | None = None
    tried: int | None = None
    capacity: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    free: int | None = None
    allowed: int | None = None
    own: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    private_pools: int | None = None
    stream: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class WorkerDied:
    """A DataLoader's worker ended: by which signal, or only that it did."""

    place: Place
    pid: int | None
    signal: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class SharedMemoryFull:
    """A write to /dev/shm failed."""

    place: Place
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class HostAllocation:
    """The system refused memory to a process: an error in the program, not a kill."""

    place: Place
    tried: int | None = None
    pinned: bool = False
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class TooManyProcesses:
    """No further process or thread was allowed."""

    place: Place
    cgroup: str = ""


@dataclass(frozen=True)
class Killed:
    """A process ended by signal 9 (or with status 137), as something beside it reports; nobody says why."""

    place: Place
    pid: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class ContainerKilled:
    """A container runtime says OOMKilled. `limit`: the container's memory limit, where it stands near."""

    place: Place
    limit: int | None = None


@dataclass(frozen=True)
class DaemonKill:
    """A daemon of the node (systemd-oomd, earlyoom, Ray's monitor) killed before the kernel had to."""

    place: Place
    daemon: str
    victim: str = ""
    rss: int | None = None
    used: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Trial:
    """A search started a trial with these parameters, or lost it: `error` is what it failed of ("": it started)."""

    place: Place
    tool: Literal["optuna", "wandb", "hydra"]
    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Progress:
    """How far the run was: the last words of it before a failure. `phase` as an estimate names phases, or ""."""

    place: Place
    phase: str


@dataclass(frozen=True)
class Named:
    """A file that the log says was run: a job script or a program."""

    place: Place
    path: str
    folder: str = ""


Evidence: TypeAlias = Union[
    KernelKill,
    StepKilled,
    MemoryExceeded,
    JobEnded,
    Accounting,
    GpuOom,
    WorkerDied,
    SharedMemoryFull,
    HostAllocation,
    TooManyProcesses,
    Killed,
    ContainerKilled,
    DaemonKill,
    Trial,
    Progress,
    Named,
]
