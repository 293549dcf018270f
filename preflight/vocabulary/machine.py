"""GPUs and nodes as the estimates see them."""

from __future__ import annotations

from msgspec import Struct, field


class Gpu(Struct, frozen=True):
    """A GPU: `capacity` is the memory that CUDA reports and a process can use (bytes, conservative), not the nameplate.

    `context` is the CUDA context with libraries outside PyTorch's allocator, one process: (low, expected, high) bytes.
    `nccl` is added to it for each rank of several. `compute_capability` is (major, minor).
    """

    name: str
    capacity: int
    context: tuple[int, int, int]
    nccl: tuple[int, int, int]
    compute_capability: tuple[int, int]
    aliases: tuple[str, ...] = ()
    source: str = ""


class Node(Struct, frozen=True):
    """A node type of a cluster or a workstation. Bytes; None: unknown."""

    name: str
    memory: int | None = None
    cpus: int | None = None
    gpus: int = 0
    gpu: str | None = None
    gpu_type: str | None = None
    """The GRES type that SLURM knows it by."""
    swap: int | None = None
    shm: int | None = None
    count: int = 1
    features: tuple[str, ...] = ()
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    gres: tuple[str, ...] = ()
    """Generic resources as SLURM writes them ("gpu:a100:2", "nvme:1"), where `gpus` and `gpu_type` do not say all."""
    memory_reserved: int | None = None
    """Memory that is reserved for the system (MemSpecLimit)."""
    local_disk: int | None = None
    """Local scratch space (TmpDisk), which --tmp asks for."""
    hosts: str | None = None
    """The names of the nodes, as a host list."""


class Partition(Struct, frozen=True):
    """A SLURM partition: bytes and minutes, None where the cluster sets none."""

    name: str
    nodes: tuple[str, ...]
    """Names of node types."""
    default: bool = False
    max_minutes: int | None = None
    default_memory_per_cpu: int | None = None
    default_memory_per_node: int | None = None
    default_memory_per_gpu: int | None = None
    max_memory_per_cpu: int | None = None
    max_memory_per_node: int | None = None
    default_minutes: int | None = None
    default_cpus_per_gpu: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    exclusive: bool = False
    """Nodes are given whole (OverSubscribe=EXCLUSIVE)."""


class Cgroup(Struct, frozen=True):
    """The limits that the cluster enforces on jobs (cgroup.conf); None: not known."""

    constrain_memory: bool | None = None
    constrain_swap: bool | None = None
    allowed_swap_percent: float | None = None
    """Swap that a job may use in addition to its memory, in per cent of its memory."""
    allowed_memory_percent: float | None = None
    """Share of its allocated memory that a job may use (AllowedRAMSpace); None: all of it."""
    max_memory_percent: float | None = None
    """Share of a node's memory that one job may use (MaxRAMPercent); None: all of it."""


class Cluster(Struct, frozen=True):
    """Where a job may run: one workstation is a cluster of one node type and no partitions."""

    name: str
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    enforce_part_limits: str = "NO"
    slurm_version: tuple[int, int] | None = None
    path: str | None = None
    """The file it was read from."""
    defaults: dict[str, int] = field(default_factory=dict)
    """Defaults of the whole cluster: memory_per_node, memory_per_cpu, memory_per_gpu (bytes), cpus_per_gpu."""
    limits: dict[str, int] = field(default_factory=dict)
    """Limits of the whole cluster: memory_per_node, memory_per_cpu (bytes)."""
    gres_types: tuple[str, ...] | None = None
    """Generic resources that the cluster knows (GresTypes); None: not known."""
    select_type: str | None = None
    """cons_tres, cons_res or linear; None: not known, taken for cons_tres."""
    select_parameters: tuple[str, ...] = ()
    max_array_size: int | None = None
    licenses: dict[str, int] | None = None
    """Licenses that the cluster counts itself, and how many; None: not known."""
    cgroup: Cgroup = field(default_factory=Cgroup)


def usable_swap(swap: int | None, memory: int | None, cgroup: Cgroup) -> int | None:
    """Bytes of a node's `swap` that a job with `memory` bytes may use; None if the limits of jobs are not known.

    cgroup.conf(5): with ConstrainSwapSpace a job may swap AllowedSwapSpace per cent of its memory, none by default;
    without it what the node has.
    """
    if swap is None or cgroup.constrain_swap is None:
        return None
    if not cgroup.constrain_swap:
        return swap
    if not cgroup.allowed_swap_percent:
        return 0
    return None if memory is None else min(swap, round(memory * cgroup.allowed_swap_percent / 100))


def usable_memory(given: int, node: int | None, cgroup: Cgroup) -> int:
    """Bytes of the memory that SLURM gives a job on a node that its processes may use.

    cgroup.conf(5), ConstrainRAMSpace: AllowedRAMSpace per cent of what is given, at most MaxRAMPercent per cent of the
    node's. Without it the figures mean nothing.
    """
    if not cgroup.constrain_memory:
        return given
    allowed = round(given * (cgroup.allowed_memory_percent or 100) / 100)
    return allowed if node is None else min(allowed, round(node * (cgroup.max_memory_percent or 100) / 100))
