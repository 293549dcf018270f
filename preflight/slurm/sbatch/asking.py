"""Checks a submission with the engine, and decides whether to stop the job, and which findings and fixes to print."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import CheckOptions, CheckSetup, setup
from preflight.engine.files import batch_of
from preflight.engine.points import jobs_of
from preflight.engine.rounds import Fixed, diff, fixed
from preflight.engine.target import machine_named
from preflight.reports.style import Look, look_for
from preflight.slurm.allocation import one_part, resolve
from preflight.slurm.sbatch.child import Plain
from preflight.slurm.sbatch.question import Question, clusters_of, machine_of, place_of, unchecked
from preflight.system.processes import ask_program
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.findings import Confidence, Finding, MemorySide, Safety, Severity
from preflight.vocabulary.job import Job
from preflight.vocabulary.outcome import Report, StudyResult
from preflight.vocabulary.project import Project, Submission
from preflight.vocabulary.words import assumed, why_unknown

OWN_FAULT = ("internal-error", "unreadable-file")
"""Findings of the engine itself, which say that something was not checked."""

MAX_JOBS = 24
"""Most jobs of an array or a sweep that are checked one by one: a replay takes some 20 ms each."""

ANSWER_SECONDS = 3
"""Seconds that `scontrol show config` may take; it takes milliseconds."""


class AskedCluster(Struct, frozen=True):
    """A project with the submission in it, the question to the engine, and the script's name in the project."""

    project: Project
    setup: CheckSetup
    name: str
    text: str


def answer(question: Question) -> Plain:
    """The answer as plain data. Raises PreflightError for wrong settings.

    `stop`; `text` for people, may be empty; `rules` with findings; `fixed`: the script's new text, None when it stays;
    `unchecked`: why the job was not checked, "" when it was; `unjudged`: why its GPU memory was not judged;
    `assumed`: what has to hold for it to fit.
    """
    try:
        text = question.script.decode("utf-8")
    except UnicodeDecodeError:
        return unchecked("the script is not UTF-8 text")
    found = asked(question, text)
    return read(question, found) if found is not None else unchecked()


def asked(question: Question, text: str) -> AskedCluster | None:
    """The project with the submission; None: the settings exclude the script. Raises PreflightError."""
    cwd = Path.cwd()
    batch = batch_of(place_of(question, cwd), cwd)
    if not batch.named:
        return None
    environment = {name: value for name, value in os.environ.items() if "\n" not in value and value.isprintable()}
    project, ask = setup(batch, CheckOptions(machine=_machine(question, environment, cwd)), cwd)
    name = batch.named[0]
    project.overlay[name] = text
    words = () if question.line.script is None else (question.line.script, *question.line.arguments)
    start = _directory(question, text, cwd, project.root)
    project.submit(name, Submission(question.line.options, environment, words, start))
    return AskedCluster(project, ask, name, text)


def _directory(question: Question, text: str, cwd: Path, root: Path) -> str:
    """Where the job starts: where sbatch is called, or at --chdir; see Submission.directory."""
    from preflight.documents.directives import read_directives

    written = [one.value for one in read_directives(text)[0] if one.name == "chdir" and one.value]
    stated = question.line.values.get("chdir") or (written[-1] if written else "")
    place = Path(os.path.normpath(cwd.resolve() / stated))
    return f"/{place.relative_to(root).as_posix()}" if place.is_relative_to(root) else "."


def _machine(question: Question, environment: dict[str, str], cwd: Path) -> str | None:
    """The machine file of the cluster that the job is submitted to."""
    stated, elsewhere = machine_of(question.line, environment), clusters_of(question.line, environment)
    if stated is None or elsewhere is None:
        return stated
    return stated if machine_named(stated, cwd).name == elsewhere else None


def read(question: Question, found: AskedCluster) -> Plain:
    """The decision about the submission, from the engine's report; see `answer`."""
    faults: dict[str, None] = {}

    def view(report: Report) -> Report:
        faults.update((finding.message, None) for finding in report.findings if finding.rule in OWN_FAULT)
        return replace(report, findings=tuple(_spoken_of(report.findings, found.name)))

    own = question.line.own
    fixable = own.fix and question.line.wrap is None  # sbatch reads no directives in a wrapped command
    result = fixed(found.project, found.setup, False, view) if fixable else None
    report = result.after if result is not None else view(_checked(found))
    stopping = tuple(_stopping(question, report))
    new = result.texts.get(found.name) if result is not None else None
    return {
        "stop": bool(stopping),
        "text": "".join(_text(question, report, result, bool(stopping))),
        "rules": sorted({one.rule for one in stopping or _errors(report)}),
        "fixed": new,
        "unchecked": "; ".join(faults),
        "unjudged": "" if question.line.quiet else "; ".join(unjudged(report)),
        "assumed": "" if question.line.quiet else "; ".join(assumptions(report)),
    }


def _checked(found: AskedCluster) -> Report:
    from preflight.engine.check import check

    return check(found.project, found.setup)


def _spoken_of(findings: Iterable[Finding], script: str) -> Iterator[Finding]:
    """Findings that matter to a submission; a fix that changes other files than the script is left out."""
    for finding in findings:
        if finding.severity is Severity.info or finding.rule in OWN_FAULT:
            continue
        fix = finding.fix
        mine = fix is not None and fix.safety is Safety.safe and {edit.path for edit in fix.edits} == {script}
        yield finding if mine or fix is None else replace(finding, fix=None)


def _errors(report: Report) -> Iterator[Finding]:
    return (finding for finding in report.findings if finding.severity is Severity.error)


# --- what stops a submission ------------------------------------------------------------------------------------------


def _stopping(question: Question, report: Report) -> Iterator[Finding]:
    """Findings that stop the submission: in strict mode every error; else memory that the job certainly lacks.

    sbatch and slurmctld refuse what they refuse by themselves. Other errors may come from our reading of the files.
    Certain: the low end of a measured interval is above the capacity of a node or GPU that is known and not assumed,
    for the only job or for every job of an array or a sweep.
    """
    for finding in _errors(report):
        if question.mode == "strict" or _certain(question, report, finding):
            yield finding


def _certain(question: Question, report: Report, finding: Finding) -> bool:
    if finding.study is None or finding.confidence is not Confidence.high:
        return False
    if finding.interval is None or finding.capacity is None or finding.interval[0] <= finding.capacity:
        return False
    result = report.studies[finding.study]
    if result.space.combinations != 1 and not _all_of(result, finding.side):
        return False  # some of an array's or a sweep's jobs may run
    request = result.study.request
    if request is not None and not one_part(request, result.study.launch):
        return False
    return _gpu_known(result) if finding.side == "device" else _limit_holds(question, result)


def _all_of(result: StudyResult, side: MemorySide) -> bool:
    """Whether every job of an array or a sweep certainly fails; False when there are too many to check each."""
    space = result.space
    if space.combinations is None or not space.counts.exceeds or space.counts.fits or space.counts.unknown:
        return False
    jobs: list[Job] = []
    for verdict in space.boxes:
        found = jobs_of(verdict.box, MAX_JOBS)
        if found is None:
            return False
        jobs += found
        if len(jobs) > MAX_JOBS:
            return False
    estimate = result.estimate
    return estimate is not None and all(_fails(estimate(job), side) for job in jobs)


def _fails(estimates: Estimates, side: MemorySide) -> bool:
    """Whether the low end of the interval is above the capacity."""
    device, host = estimates.device, estimates.host
    if side == "device":
        return device is not None and device.capacity is not None and device.process.low > device.capacity
    return host is not None and host.limit is not None and host.per_node.low > host.limit


def _gpu_known(result: StudyResult) -> bool:
    """Whether the request or the cluster names the GPU: the settings may name that of the user's workstation."""
    request = result.study.request
    if request is None or result.notes:
        return False
    allocation = resolve(request, result.cluster)
    if allocation.gpu is None or allocation.gpu != result.gpu or allocation.notes or allocation.doubts:
        return False
    kinds = {node.gpu for node in result.cluster.nodes if node.gpus} if result.cluster is not None else set()
    return request.gpu_type is not None or len(kinds) == 1 or _place_known(result)


def _place_known(result: StudyResult) -> bool:
    """Whether the user names the partition: else a plugin of the site may choose one."""
    request, cluster = result.study.request, result.cluster
    return request is not None and (request.partition is not None or cluster is None or len(cluster.partitions) < 2)


def _limit_holds(question: Question, result: StudyResult) -> bool:
    """Whether the job is killed at its limit: at the node's memory always, at the request when SLURM enforces it."""
    host = result.space.worst.estimates.host
    request = result.study.request
    if host is None or request is None:
        return False
    stated = isinstance(request.memory, int) and request.memory > 0  # the same on every node
    if not stated and (result.notes or resolve(request, result.cluster).notes or not _place_known(result)):
        return False
    if host.limited_by != "memory_limit":
        return host.limited_by_node and not result.notes and _place_known(result)
    return confined(question.scontrol)


def confined(scontrol: str) -> bool:
    """Whether the controller says that it enforces the memory that jobs request.

    `scontrol show config` has TaskPlugin, JobAcctGatherParams and, where cgroups are in use, what cgroup.conf says
    (slurm.conf(5), cgroup.conf(5)). Without an answer it is not known: False.
    """
    try:
        answer = ask_program([scontrol, "show", "config"], ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    pairs = (line.partition("=") for line in answer.stdout.splitlines())
    said = {name.strip(): value.strip().lower() for name, _, value in pairs}
    by_cgroup = "task/cgroup" in said.get("TaskPlugin", "") and said.get("ConstrainRAMSpace") == "yes"
    return by_cgroup or "overmemorykill" in said.get("JobAcctGatherParams", "")


# --- text for the user -----------------------------------------------------------------------------------------------


def _text(question: Question, report: Report, result: Fixed | None, stop: bool) -> Iterator[str]:
    """The text for standard error: findings, fixes, and whether the job is submitted. Empty without findings."""
    own = question.line.own
    would = "would be" if own.only else "is"
    if result is not None and result.texts and not stop:
        yield diff(result, Path.cwd())
        fixes = f"{result.count} fix{'es' if result.count != 1 else ''}"
        yield f"preflight: the job {would} submitted with {fixes} to its script\n"
    if not (report.findings or own.verbose) or (question.line.quiet and not stop):
        return
    look = look_for(sys.stdout if own.only else sys.stderr, detail="all" if own.verbose else "short")
    yield _report(report, look, full=stop or own.verbose or any(_errors(report)))
    if stop and question.mode == "warn":
        yield f"preflight: the job {would} submitted nevertheless\n"
    elif stop:
        ways = ["--preflight-exit-zero submits it unchanged"]
        if question.line.wrap is None and any(finding.fix is not None for finding in report.findings) and not own.fix:
            ways.insert(0, "--preflight-fix submits it with the fixes of the script")
        yield f"preflight: the job {would} stopped; {'; '.join(ways)}\n"


def _report(report: Report, look: Look, full: bool) -> str:
    from preflight.engine.check import outcome_of
    from preflight.reports import render

    return render("full" if full else "concise", outcome_of([report], Path.cwd()), look)


# --- what could not be judged ----------------------------------------------------------------------------------------


def unjudged(report: Report) -> Iterator[str]:
    """Why the GPU memory of the job was not judged: a job that is submitted without a word was found to fit.

    A script that requests GPUs is a study, whatever it runs. One that requests none and trains nothing is not judged.
    """
    told = {finding.study for finding in report.findings if finding.side == "device"}
    named = not any(finding.settings == ("machine.gpu",) for finding in report.findings)
    reasons = dict.fromkeys(
        reason
        for index, result in enumerate(report.studies)
        if index not in told and (reason := _reason(result, named)) is not None
    )
    yield from reasons


def assumptions(report: Report) -> Iterator[str]:
    """What has to hold for the job to fit, of each study whose values are not all known well."""
    yield from dict.fromkeys(
        assumed(found.assumptions)
        for result in report.studies
        if (found := result.space.worst.estimates).verdict == "fits-if"
    )


def _reason(result: StudyResult, named: bool) -> str | None:
    """Why the GPU memory of a study was not judged. `named`: no finding says that the GPU is not named."""
    found = result.space.worst.estimates
    if result.space.worst.job.machine.accelerator == "cpu":
        return None
    if found.device is not None and found.device.verdict != "unknown":
        return None
    if found.device is not None and found.device.capacity is None:
        return "its GPU memory is estimated, but no GPU is named that it must fit" if named else None
    return f"its GPU memory is unknown: {why_unknown(found) or 'only a lower bound is known'}"
