"""The job that the controller is asked about, and the errors that it answers with: SLURM's own types and messages.

`SlurmJob` is job_desc_msg_t (slurm/slurm.h), `Gres` is gres_job_state_t (src/common/gres.h). The texts are those
of slurm_strerror (src/common/slurm_errno.c).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from preflight.vocabulary.values import Value

NODE_CONFIG = "Requested node configuration is not available"
FEATURE = "Invalid feature specification"
PARTITION = "Invalid partition name specified"
NO_DEFAULT = "No partition specified or system default partition"
NODE_COUNT = "Node count specification invalid"
TIME_LIMIT = "Requested time limit is invalid (missing or exceeds some limit)"
TIME_MIN = "Invalid time-min specification (exceeds job's time or other limits)"
TASK_MEMORY = "Memory required by task is not available"
CPUS = "More processors requested than permitted"
GRES = "Invalid generic resource (gres) specification"
GRES_TYPE = "Invalid GRES specification (with and without type identification)"
GRES_PLUGIN = "Requested GRES option unsupported by configured SelectType plugin"
TRES = "Invalid Trackable RESource (TRES) specification"
ARRAY = "Invalid job array specification"
NODE_NAME = "Invalid node name specified"
NOT_IN_PARTITION = "Requested nodes not in this partition"
LICENSE = "Invalid license specification"
DEPENDENCY = "Job dependency problem"
PREFER = "Invalid preferred feature specification"
CLIENT = "sbatch itself"
"""sbatch itself refuses the request, before it asks the controller; the words are its message."""


class RequestRefused(Exception):
    """A request is refused: the controller's answer, the reason for the user, and the fields that are the reason."""

    def __init__(self, answer: str, words: str, *settings: str) -> None:
        super().__init__(words)
        self.answer, self.words, self.settings = answer, words, settings


def whole(value: Value) -> int | None:
    """A count that is known; None where it is not given or not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


class Gres(Struct):
    """gres_job_state_t: one resource, one type. Counts are 0 if not requested; memory in MiB."""

    name: str
    type: str | None = None
    per_job: int = 0
    per_node: int = 0
    per_socket: int = 0
    per_task: int = 0
    cpus_per: int = 0
    memory_per: int = 0
    tasks_per: int | None = None
    default_cpus_per: int = 0
    default_memory_per: int = 0
    total: int = 0

    @property
    def cpus_of_each(self) -> int:
        return self.cpus_per or self.default_cpus_per

    @property
    def memory_of_each(self) -> int:
        return self.memory_per or self.default_memory_per


def asked(same: Sequence[Gres]) -> tuple[int, int, int, int]:
    """How many of one resource are requested per job, node, socket and task, of all types together."""
    per_job, per_node = sum(one.per_job for one in same), sum(one.per_node for one in same)
    return per_job, per_node, sum(one.per_socket for one in same), sum(one.per_task for one in same)


class SlurmJob(Struct):
    """job_desc_msg_t: the fields that decide a job's resources. None: not given. Memory in MiB."""

    num_tasks: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    ntasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    cpus_per_node: int | None = None
    """pn_min_cpus: no node with fewer is taken."""
    min_cpus: int = 1
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_stated: bool = False
    gres: list[Gres] = field(default_factory=list)
    exclusive: bool = False
    shared_with: str | None = None
    overcommit: bool = False
    features: str | None = None
    partition: str | None = None
    node_list: str | None = None
    exclude: str | None = None
    time_limit: int | None = None
    time_min: int | None = None
    contiguous: bool = False
    licenses: str | None = None
    prefer: str | None = None
    dependency: str | None = None
    local_disk: int | None = None
    array: str | None = None
    later_part: bool = False
    """Not the first part of a heterogeneous job: the script goes with the first."""

    @property
    def whole_node(self) -> bool:
        return self.exclusive

    @property
    def cpus_per_task_or_one(self) -> int:
        return max(self.cpus_per_task or 1, 1)
