from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from pydantic import Field

from preflight.api import (
    GIB,
    Case,
    Change,
    Confidence,
    Example,
    Finding,
    Options,
    Proposal,
    Rule,
    Safety,
    Severity,
    gib,
    host_of,
)
from preflight_rules.shared.host import doing
from preflight_rules.shared.programs import JOB_SAMPLES, ON_CLUSTER, TRAIN, job, job_files
from preflight_rules.shared.slurm import allocation_of, node_limit, place, whole_gib

SILENT = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8")


class UnstatedOptions(Options):
    largest: int = Field(
        4 * GIB, ge=0, description="No finding if the job needs no more host memory per node than this (bytes)."
    )


class SlurmMemoryUnstated(Rule[UnstatedOptions]):
    """The script requests no memory, so the default of the cluster decides, and no file states it.

    About half of public job scripts request no memory. The job then gets `DefMemPerNode`, `DefMemPerCPU` or
    `DefMemPerGPU` of the cluster or the partition, or the whole node if none of them is set. `--exclusive` gives all
    CPUs and GPUs of a node, but not its memory.

    The same script may run on one cluster and be killed on another.

    The fix writes a `--mem` directive with the need of the job. It is unsafe unless the node is known to have that much
    memory.
    """

    name = "slurm-memory-unstated"
    summary = "No memory is requested, so the default of the cluster decides"
    tags = ("slurm", "host-memory")
    examples = (
        Example(
            "No --mem, and no cluster that says what the default is",
            {"train.sbatch": SILENT, "train.py": TRAIN},
            says=("no memory is requested",),
            options={"set": JOB_SAMPLES},
        ),
        Example("The cluster gives whole nodes", job_files(SILENT), finds=0, options=ON_CLUSTER),
    )

    def check(self, case: Case[UnstatedOptions]) -> Iterator[Finding]:
        host, request, found = host_of(case), case.study.request, allocation_of(case)
        if host is None or request is None or found is None or host.per_node.expected <= case.options.largest:
            return
        stated = any(name in request.origins for name in ("memory", "memory_per_cpu", "memory_per_gpu"))
        if stated or found.memory_limit is not None or host.limited_by == "memory_limit":
            return
        need = whole_gib(host.per_node.high)
        node = node_limit(case)
        known = node is not None and need <= node
        yield self.finding(
            f"no memory is requested, so the default of the cluster decides; the job needs about "
            f"{gib(host.per_node.expected)} per node ({doing(case, host)})",
            place(request),
            Severity.info,
            Confidence.medium,
            estimate=replace(host, limit=None),
            settings=("request.memory",),
            help=(f"add #SBATCH --mem={need // GIB}G",),
            proposals=(
                Proposal(
                    f"--mem={need // GIB}G",
                    (Change("request.memory", need),),
                    Safety.safe if known else Safety.unsafe,
                    "" if known else "the memory of the nodes is unknown",
                ),
            ),
        )
