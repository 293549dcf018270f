"""What preflight says of a request, beside what `sbatch --test-only` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.dialects.slurm.request import read_request
from preflight.slurm.controller.job import CLIENT, GRES, GRES_PLUGIN, GRES_TYPE
from preflight.slurm.controller.verdict import judge
from preflight.vocabulary.machine import Cluster
from preflight.vocabulary.project import Submission
from preflight.vocabulary.reading import Problem, Request
from preflight.vocabulary.text import Source

CHECKED_TWICE = (GRES, GRES_TYPE, GRES_PLUGIN)
"""What sbatch and the controller check alike; sbatch comes first and answers in the controller's words."""


@dataclass(frozen=True)
class Said:
    """A verdict: accepted, or refused with the controller's answer (CLIENT: sbatch did not ask it)."""

    accepted: bool
    answer: str = ""
    words: str = ""


def asked(options: Sequence[str]) -> tuple[Request, tuple[Problem, ...]]:
    """The request that these words on sbatch's command line make."""
    return read_request(Source("job.sh", "#!/bin/sh\nhostname\n"), (), Submission(tuple(options)))


def ours(options: Sequence[str], cluster: Cluster) -> Said:
    request, problems = asked(options)
    for problem in problems:
        if problem.severity == "error":
            return Said(False, CLIENT, problem.message)
    verdict = judge(request, cluster)
    return Said(True) if verdict.answer is None else Said(False, verdict.answer, verdict.words)


def theirs(code: int, text: str) -> Said:
    """sbatch's output: `allocation failure: ...` is the controller's answer, any other error its own."""
    if code == 0:
        return Said(True)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failed = next((line for line in lines if line.startswith("allocation failure: ")), None)
    if failed is not None:
        return Said(False, failed.removeprefix("allocation failure: "), text)
    last = lines[-1].removeprefix("sbatch: ").removeprefix("error: ") if lines else ""
    return Said(False, last if last in CHECKED_TWICE else CLIENT, text)
