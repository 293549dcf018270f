from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Change, Example, Finding, Proposal, Request, Rule, Severity, plural, written
from preflight_rules.shared.loaders import proposed
from preflight_rules.shared.programs import LOADER
from preflight_rules.shared.same_run import workers_hazard
from preflight_rules.shared.slurm import allocation_of

SPAWNING = ("torchrun", "accelerate", "deepspeed")
"""Launchers that start several ranks in one task. The ranks share its CPUs."""
ASKED = ("cpus_per_task", "cpus_per_gpu")
"""Fields of a request that state how many CPUs the job gets."""


class WorkersExceedCpus(Rule):
    """The job has more DataLoader workers than CPUs.

    The workers take turns on the CPUs, and each keeps its batches in memory while it waits. PyTorch warns when the job
    runs ("This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current
    system is 4").

    The fix sets the number of workers to the CPUs of one rank. Samples and their order stay the same if the data set is
    indexed. The fix is unsafe for an iterable data set (IterableDataset, `streaming=True`), because its order depends
    on the number of workers, and for a data set whose kind is unknown.
    """

    name = "workers-exceed-cpus"
    summary = "The job has more DataLoader workers than CPUs"
    tags = ("data-loading",)
    examples = (
        Example(
            "16 workers on 8 processors",
            {"train.py": LOADER},
            fixed={"train.py": LOADER.replace("num_workers=16", "num_workers=8")},
            says=("16 workers on 8 CPUs",),
            options={"set": {"machine.cpus": 8}},
        ),
        Example("16 workers on 16 processors", {"train.py": LOADER}, finds=0, options={"set": {"machine.cpus": 16}}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        workers, ranks = case.job.data.workers, case.job.parallel.ranks_per_node or 1
        cpus = self._cpus(case, ranks)
        if workers is None or cpus is None or workers * ranks <= max(cpus, ranks):
            return
        fewer = max(1, cpus // ranks)
        proposals: tuple[Proposal, ...] = ()
        if written(case, "data.workers"):
            changes = (Change("data.workers", fewer),)
            proposals = (proposed(case, f"workers {workers} -> {fewer}", changes, workers_hazard(case)),)
        request = case.study.request
        names = [name for name in ASKED if request is not None and name in request.origins]
        related = tuple((request.origins[name], self._asked(request, name)) for name in names if request)
        if cpus % ranks == 0:
            message = f"{plural(workers, 'worker')} on {plural(cpus // ranks, 'CPU')}{' per rank' if ranks > 1 else ''}"
        else:
            message = f"{ranks} ranks with {plural(workers, 'worker')} each on {plural(cpus, 'CPU')}"
        yield self.finding(
            f"{message}: {fewer} {'in each rank ' if ranks > 1 else ''}can run at a time",
            case.origin("data.workers"),
            Severity.warning,
            settings=("data.workers", "machine.cpus"),
            related=related,
            label=f"more than {plural(cpus, 'CPU')}" if ranks == 1 else f"in each of {ranks} ranks",
            proposals=proposals,
        )

    def _asked(self, request: Request, name: str) -> str:
        value, unit = getattr(request, name), name.removeprefix("cpus_").replace("_", " ")
        return f"{plural(value, 'CPU') if isinstance(value, int) else 'CPUs'} {unit}"

    def _cpus(self, case: Case, ranks: int) -> int | None:
        """CPUs of the job on a node; None if the job requests none, because the default of the site is unknown."""
        request = case.study.request
        if request is None:
            return case.job.machine.cpus
        each = request.cpus_per_task
        if isinstance(each, int) and case.study.launch.launcher not in SPAWNING:
            return each * ranks  # a rank is a task
        stated = any(name in request.origins for name in ASKED)
        found = allocation_of(case)
        return found.cpus_per_node if stated and found is not None else None
