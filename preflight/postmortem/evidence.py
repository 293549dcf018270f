"""Types of evidence: facts from one place of a log. Sizes are bytes; None: not in the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field


class LogPlace(Struct, frozen=True):
    """A line of a log, counted from 1. `text`: the line as it is shown, shortened."""

    path: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class TracebackFrame(Struct, frozen=True):
    """One frame of a Python traceback."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.path.rpartition('site-packages/')[2]}:{self.line}"


class Task(Struct, frozen=True):
    """A row of the kernel's task table; `pages` resident, `total_pages` of address space."""

    pid: int
    name: str
    pages: int
    total_pages: int


class Evidence(Struct, frozen=True):
    """Base of all kinds of evidence: the facts from one place of a log."""

    place: LogPlace


class KernelKill(Evidence, frozen=True):
    """The kernel's out-of-memory killer chose a process.

    `scope`: cgroup (a limit of a control group), node (the machine), policy (a cpuset or NUMA policy).
    `usage` and `limit` are the cgroup's, `anon` and `shmem` from its statistics.
    """

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


class StepKilled(Evidence, frozen=True):
    """slurmstepd reports that `count` processes of a step were killed for memory."""

    job: str | None
    step: str = ""
    count: int | None = None


class MemoryExceeded(Evidence, frozen=True):
    """SLURM itself found a job above its memory limit, without a cgroup. None: the unit of the figures is not clear."""

    job: str | None
    used: int | None = None
    limit: int | None = None


class JobEnded(Evidence, frozen=True):
    """SLURM ended a job or a step."""

    job: str | None
    reason: Literal["time", "node-failure", "preempted", "cancelled"]
    node: str = ""
    when: str = ""


class Accounting(Evidence, frozen=True):
    """A row of sacct, or the output of seff. `requested` bytes are `per` node or cpu ("": not said).

    `largest_task` is MaxRSS, `average_task` AveRSS: sampled resident bytes of one task.
    """

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
        """Bytes that the job got on each node; None: the row does not tell."""
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


class GpuOom(Evidence, frozen=True):
    """A GPU allocation failed, as `library` reports it.

    `free`: on the GPU; `own`: of this process, by the driver; `others`: of other processes (pid, bytes). In a container
    this process may be one of the others, because processes have other numbers there.
    """

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
    frames: tuple[TracebackFrame, ...] = ()


class WorkerDied(Evidence, frozen=True):
    """A DataLoader worker ended by a signal ("": not said)."""

    pid: int | None
    signal: str
    frames: tuple[TracebackFrame, ...] = ()


class SharedMemoryFull(Evidence, frozen=True):
    """A write to /dev/shm failed."""

    frames: tuple[TracebackFrame, ...] = ()


class TooManyFiles(Evidence, frozen=True):
    """The process had as many files open as it may: the tensors that DataLoader workers hand over count, too."""

    frames: tuple[TracebackFrame, ...] = ()


class HostAllocation(Evidence, frozen=True):
    """The system refused to allocate memory: the program got an error and was not killed."""

    tried: int | None = None
    pinned: bool = False
    frames: tuple[TracebackFrame, ...] = ()


class TooManyProcesses(Evidence, frozen=True):
    """No further process or thread was allowed."""

    cgroup: str = ""


class Killed(Evidence, frozen=True):
    """Another process reports that a process ended by signal 9 (or with status 137), without the reason."""

    pid: int | None = None
    rank: int | None = None


class ContainerKilled(Evidence, frozen=True):
    """A container runtime reports OOMKilled. `limit`: the memory limit of the container."""

    limit: int | None = None


class DaemonKill(Evidence, frozen=True):
    """A daemon of the node (systemd-oomd, earlyoom, Ray's monitor) killed a process before the kernel did."""

    daemon: str
    victim: str = ""
    rss: int | None = None
    used: int | None = None
    total: int | None = None


class Trial(Evidence, frozen=True):
    """A search started a trial with these parameters, or the trial failed with `error` ("": it started)."""

    tool: Literal["optuna", "wandb", "hydra"]
    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    error: str = ""


class LoggedProgress(Evidence, frozen=True):
    """A line that shows progress. `phase` has the estimates' names of phases; "": not known."""

    phase: str


class Named(Evidence, frozen=True):
    """A job script or a program that was run, as the log says."""

    path: str
    folder: str = ""
