"""What a step that srun starts gets of its job."""

from __future__ import annotations

from preflight.vocabulary.findings import Proposal
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import Case
from preflight.vocabulary.text import Edit

STEP = "SLURM_STEP_ID"
"""A variable that only processes started by srun have (srun(1), OUTPUT ENVIRONMENT VARIABLES)."""

STEP_CPUS = "SRUN_CPUS_PER_TASK"
NOT_INHERITED = ((22, 5), (23, 11))
"""Versions, the last one excluded, whose srun reads SRUN_CPUS_PER_TASK and not the SLURM_CPUS_PER_TASK that sbatch sets
(src/srun/libsrun/opt.c of 22.05 and 23.02; SLURM_CPUS_PER_TASK again in 23.11)."""


def cpus_lost(case: Case, request: Request) -> str | None:
    """In words, that the step's tasks get one CPU although the job asks for more; None: they do not, or who knows."""
    version = case.cluster.slurm_version if case.cluster is not None else None
    each, environment = request.cpus_per_task, case.study.launch.environment
    if version is None or not NOT_INHERITED[0] <= version < NOT_INHERITED[1]:
        return None
    if STEP not in environment or STEP_CPUS in environment or not isinstance(each, int) or each < 2:
        return None
    said = f"srun of SLURM {version[0]}.{version[1]:02d} does not inherit --cpus-per-task={each}"
    return f"{said}: every task of the step gets one CPU; give srun -c {each}, or export {STEP_CPUS}"


def export(request: Request) -> tuple[Proposal, ...]:
    """The variable, exported behind the directives."""
    if request.insert_at is None:
        return ()
    edit = Edit(request.insert_at.path, request.insert_at.span, f'export {STEP_CPUS}="$SLURM_CPUS_PER_TASK"\n')
    return (Proposal(f"export {STEP_CPUS}", edits=(edit,), reason="the step gets more CPUs than before"),)
