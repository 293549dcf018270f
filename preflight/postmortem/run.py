"""A whole post-mortem: reads the logs, draws the conclusion, finds the configuration, compares with the estimate."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from preflight.engine.check import CheckOptions
from preflight.postmortem.collect import CollectedEvidence, collect, collect_text
from preflight.postmortem.compare import Compared, compare
from preflight.postmortem.conclude import Conclusion, conclude, of_job
from preflight.postmortem.configuration import ConfigurationFile, judge, meant, named
from preflight.postmortem.diagnosis import Diagnosis
from preflight.system.processes import ask_program
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.outcome import Outcome, Report

MOST_STUDIES = 3
"""Most studies whose estimate is shown; the findings of `check` are shown for all."""

SACCT_SECONDS = 30
"""Seconds that sacct may take: it only asks the accounting database."""

FIELDS = (
    "JobID,JobName,State,ExitCode,Elapsed,Timelimit,ReqMem,MaxRSS,AveRSS,AllocTRES,NNodes,NTasks,AllocCPUS,WorkDir,"
    "SubmitLine"
)


class Postmortem(Struct, frozen=True):
    """The post-mortem: diagnoses, the estimate for the job, and the findings of `check` (None: no known configuration).

    `configuration`: the files; `from_logs`: the logs name them; `notes`: shown once, at the end.
    """

    found: CollectedEvidence
    conclusion: Conclusion
    compared: tuple[Compared, ...] = ()
    outcome: Outcome | None = None
    configuration: tuple[str, ...] = ()
    from_logs: bool = False
    notes: tuple[str, ...] = ()


def postmortem(
    logs: Sequence[str],
    configuration: Sequence[str],
    job: str | None,
    options: CheckOptions,
    cwd: Path,
    outcome: Callable[[Sequence[Report]], Outcome],
) -> Postmortem:
    """The post-mortem of logs; without logs, of the output of sacct for the job.

    `outcome` turns reports into what `check` prints. Raises UsageError for logs or files that cannot be read.
    """
    found = collect(logs) if logs or job is None else collect_text("sacct", ask_sacct(job))
    if job is not None:
        found = of_job(found, job)
    conclusion = conclude(found)
    files, from_logs = tuple(configuration), False
    if not files and conclusion.causes:
        files, from_logs = tuple(named(found, cwd)), True
    if not files:
        return Postmortem(found, conclusion)
    reports, candidates, notes = judge(files, options, conclusion.causes, cwd)
    if from_logs:
        notes.append(f"the logs name {files[0]}; use --config FILE for another one")
    return Postmortem(
        found,
        conclusion,
        tuple(_compared(meant(candidates, found, cwd), conclusion.causes)),
        outcome(reports),
        files,
        from_logs,
        tuple(notes),
    )


def _compared(candidates: Sequence[ConfigurationFile], causes: Sequence[Diagnosis]) -> list[Compared]:
    """The first diagnosis that the estimate says something about, compared with each study."""
    for cause in causes:
        found = [compare(candidate, cause) for candidate in candidates[:MOST_STUDIES]]
        told = [one for one in found if one.words or one.rows]
        if told:
            return told
    return []


def ask_sacct(job: str) -> str:
    """The output of sacct for a job. Raises UsageError when sacct cannot be asked."""
    if not job.replace("_", "").replace(".", "").replace("+", "").isalnum():
        raise UsageError(f"--job-id {job}: not the number of a SLURM job")
    command = ["sacct", "-j", job, "-P", f"--format={FIELDS}"]
    try:
        found = ask_program(command, SACCT_SECONDS)
    except FileNotFoundError:
        raise UsageError(
            "no logs are given, and sacct is not found: run this where SLURM is, or give a file with its output"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"sacct did not answer within {SACCT_SECONDS} s") from None
    if found.returncode:
        raise UsageError(
            f"sacct failed: {found.stderr.strip().splitlines()[0] if found.stderr.strip() else 'it gave no reason'}"
        )
    return found.stdout
