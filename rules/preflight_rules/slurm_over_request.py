from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.api import (
    GIB,
    Allocation,
    Case,
    Change,
    Confidence,
    Example,
    Finding,
    HostEstimate,
    Options,
    Proposal,
    Request,
    Rule,
    Safety,
    Severity,
    at_most,
    gib,
    host_of,
    plural,
)
from preflight_rules.shared.programs import CLUSTER, ON_CLUSTER, TRAIN, job, job_files
from preflight_rules.shared.slurm import allocation_of

ROOMY = job("--nodes=1 --ntasks-per-node=1", "--gres=gpu:a100:1", "--cpus-per-task=8", "--mem=200G")
ALONE = job("--nodes=1", "--gres=gpu:4", "--mem=16G", line="python train.py --batch_size 64 --workers 4")
BY_NAME = TRAIN.replace("DataLoader(dataset, batch_size=args.batch_size, shuffle=True, ", "loader_of(args, ")
ASKED = ("memory", "memory_per_cpu", "memory_per_gpu")


class OverOptions(Options):
    factor: float = Field(2.0, gt=1, description="No finding if the job requests less than this many times its need.")
    surplus: int = Field(
        16 * GIB, ge=0, description="No finding if less memory per node than this would stay unused (bytes)."
    )


class SlurmOverRequest(Rule[OverOptions]):
    """The job asks for much more host memory than it needs, or for GPUs that no process uses.

    The need is the high end of the estimate, of a job that fits whatever is not known of it. A job that gets the whole
    memory of a node (`--exclusive`, `--mem=0`) or the default of the cluster is not reported. Nor is one that also runs
    another program of which nothing is known (`./simulate`, `python prepare.py`): it may need what is asked for.

    A job that asks for less starts sooner, and other jobs cannot use memory that this job reserves and does not need.

    The fix writes the need, rounded up to whole GiB. It is unsafe, because the estimate does not know everything that
    the job may hold, such as caches of libraries and other programs of the script.
    """

    name = "slurm-over-request"
    summary = "The job requests much more than it needs"
    tags = ("slurm",)
    examples = (
        Example(
            "One rank asks for most of a node",
            job_files(ROOMY),
            says=("--mem gives 200 GiB per node", "stay unused"),
            options=ON_CLUSTER,
        ),
        Example(
            "Most of what is asked for is needed",
            job_files(ROOMY.replace("200G", "32G")),
            finds=0,
            options=ON_CLUSTER,
        ),
        Example(
            "A whole node costs nothing more",
            job_files(ROOMY.replace("--mem=200G", "--exclusive --mem=0")),
            finds=0,
            options=ON_CLUSTER,
        ),
        Example(
            "What the job runs out of is /dev/shm",
            {**job_files(ROOMY), "cluster.toml": CLUSTER.replace("gpus = 4", 'gpus = 4\nshm = "64MB"')},
            finds=0,
            options=ON_CLUSTER,
        ),
        Example(
            "Only the name of the option says that it is the batch: it may need more",
            {**job_files(ROOMY), "train.py": BY_NAME},
            finds=0,
            options=ON_CLUSTER,
        ),
        Example(
            "Another program of the same job may need it",
            job_files(ROOMY.replace("python train.py", "./simulate --steps 100\npython train.py")),
            finds=0,
            options=ON_CLUSTER,
        ),
        Example("One process beside four GPUs", {"train.sbatch": ALONE, "train.py": TRAIN}, says=("one process",)),
    )

    def check(self, case: Case[OverOptions]) -> Iterator[Finding]:
        request = case.study.request
        if request is None or case.beside or case.study.unread_programs:
            return
        found = allocation_of(case)
        if found is None or found.impossible is not None:
            return
        host = host_of(case)
        # an estimate of /dev/shm is of that alone, and a need that is not certain may be larger
        if host is not None and host.limited_by != "/dev/shm" and host.verdict == "fits":
            yield from self._memory(case, request, found, host)
        yield from self._gpus(case, request, found)

    def _memory(
        self, case: Case[OverOptions], request: Request, found: Allocation, host: HostEstimate
    ) -> Iterator[Finding]:
        name = next((one for one in ASKED if request.origins.get(one) is not None), None)
        asked, need = found.memory_limit, host.per_node.high
        if name is None or asked is None or request.exclusive or found.memory_said.startswith("--mem=0"):
            return
        if asked < case.options.factor * need or asked - need < case.options.surplus:
            return
        yield self.finding(
            f"{found.memory_said or 'the request'} gives {gib(asked)} per node, and the job needs "
            f"{gib(host.per_node.expected)} ({gib(host.per_node.low)} to {gib(need)}): "
            f"{at_most(asked - need)} per node stay unused",
            request.origins[name],
            Severity.info,
            Confidence.medium,
            estimate=host,
            settings=(f"request.{name}",),
            label=f"{gib(asked)} per node",
            capacity=asked,
            proposals=tuple(self._less(name, found, need)),
        )

    def _less(self, name: str, found: Allocation, need: int) -> Iterator[Proposal]:
        units = {"memory": 1, "memory_per_cpu": found.cpus_per_node, "memory_per_gpu": found.gpus_per_node}[name]
        if not units:
            return
        each = -(-need // units // GIB) * GIB
        reason = "memory that the estimate does not know of has to fit too"
        yield Proposal(
            f"{name.replace('_', ' ')} -> {gib(each)}", (Change(f"request.{name}", each),), Safety.unsafe, reason
        )

    def _gpus(self, case: Case, request: Request, found: Allocation) -> Iterator[Finding]:
        """One process of a hand-written loop without a parallel strategy, on a node with several GPUs."""
        gpus, launch = found.gpus_per_node, case.study.launch
        alone = launch.launcher == "python" and launch.ranks_per_node is None and launch.total_ranks is None
        if not gpus or gpus < 2 or not alone or case.fact("framework") != "hand-written":
            return
        if case.job.parallel.strategy != "none" or case.job.parallel.trials_per_gpu not in (1, None):
            return
        name = next((one for one in ("gpus_per_node", "gpus", "gpus_per_task") if one in request.origins), None)
        if name is None:
            return
        yield self.finding(
            f"{plural(gpus, 'GPU')} per node are requested and one process is started: it uses one, unless the "
            "program spreads its model over several",
            request.origins[name],
            Severity.info,
            Confidence.low,
            settings=(f"request.{name}",),
        )
