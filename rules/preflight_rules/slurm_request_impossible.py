from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    GIB,
    MIB,
    NODE_CONFIG,
    Allocation,
    Case,
    Change,
    Example,
    Finding,
    Origin,
    Proposal,
    Request,
    Rule,
    Safety,
    Severity,
    gib,
    host_of,
)
from preflight_rules.shared.programs import ON_CLUSTER, job, job_files
from preflight_rules.shared.slurm import allocation_of, memory_change, place

LARGE = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", "--mem=256G")


class SlurmRequestImpossible(Rule):
    """No node of the cluster has the requested resources, or sbatch refuses the combination of options.

    Sizes are powers of 1024: `--mem=256G` is 262144 MiB and does not fit a node with `RealMemory=256000`. GRES types
    are case-sensitive. `--mem-per-cpu` counts for every CPU of the tasks on a node. Most clusters accept a request that
    is only above a limit of the partition (`MaxTime`, `MaxMemPerNode`), and never start the job: that is a warning.

    The job is refused when it is submitted, or waits in the queue for ever.

    The fix lowers the memory or the CPUs to what the node has. It is safe if the job is known to need no more.
    """

    name = "slurm-request-impossible"
    summary = "No node has the requested resources"
    tags = ("slurm",)
    examples = (
        Example(
            "256G is 262144 MiB, and the node has 256000",
            job_files(LARGE),
            fixed={"train.sbatch": LARGE.replace("256G", "250G")},
            says=("262144 MiB", "256000 MiB"),
            options={**ON_CLUSTER, "set": {"data.sample_bytes": 40 * MIB}},
        ),
        Example("250G is what fits", job_files(LARGE.replace("256G", "250G")), finds=0, options=ON_CLUSTER),
        Example(
            "GRES types are case-sensitive",
            job_files(LARGE.replace("256G", "250G").replace("gpu:4", "gpu:A100:4")),
            says=("A100",),
            options=ON_CLUSTER,
        ),
        Example(
            "A time limit beyond the partition's is accepted and never starts",
            job_files(LARGE.replace("256G", "250G").replace("--gres=gpu:4", "--gres=gpu:4 --time=2-00:00:00")),
            says=("never start", "2880"),
            options=ON_CLUSTER,
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
        request, found = case.study.request, allocation_of(case)
        if request is None or found is None:
            return
        where = f" on {case.cluster.name}" if case.cluster is not None else ""
        if found.impossible is not None:
            names = tuple(name.removeprefix("request.") for name in found.settings)
            yield self.finding(
                self._message(found, where),
                place(request, *names),
                Severity.error,
                settings=found.settings,
                related=self._related(request, names),
                label="more than a node has" if where and found.answer in ("", NODE_CONFIG) else "",
                notes=(f"sbatch answers: {found.answer}",) if found.answer else (),
                proposals=tuple(self._fixes(case, request, found)),
            )
        for text in found.warnings:
            name = "time_minutes" if text.startswith("--time") else "memory"
            yield self.finding(
                f"the cluster would accept the job and never start it: {text}",
                place(request, name, "memory_per_cpu", "memory_per_gpu"),
                Severity.warning,
                settings=(f"request.{name}",),
            )

    def _message(self, found: Allocation, where: str) -> str:
        words = found.impossible or ""
        if found.answer == NODE_CONFIG:
            return f"no node{where} can run the job: {words}"
        return f"sbatch refuses the job{where}: {words}" if where else words

    def _related(self, request: Request, names: tuple[str, ...]) -> tuple[tuple[Origin, str], ...]:
        origin = request.origins.get("partition")
        return () if origin is None or "partition" in names else ((origin, f"partition {request.partition}"),)

    def _fixes(self, case: Case, request: Request, found: Allocation) -> Iterator[Proposal]:
        node, setting = found.node, found.settings[0].removeprefix("request.") if found.settings else ""
        if node is None:
            return
        if setting.startswith("memory") and node.memory is not None:
            change = memory_change(case, node.memory // GIB * GIB)
            host = host_of(case)
            enough = change is not None and host is not None and host.per_node.high <= change[1]
            if change is not None and change[1] > 0:
                reason = "" if enough else "the job may need more"
                title = f"request the memory of the node ({gib(change[1])})"
                yield Proposal(title, (change[0],), Safety.safe if enough else Safety.unsafe, reason)
        if setting == "cpus_per_task" and node.cpus is not None and found.tasks_per_node:
            fewer = node.cpus // found.tasks_per_node
            if fewer:
                yield Proposal(f"CPUs per task -> {fewer}", (Change("request.cpus_per_task", fewer),), Safety.safe)
