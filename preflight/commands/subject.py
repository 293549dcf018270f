"""The job that TARGET names in `preflight estimate` and `preflight fit`: a job file, a Job, or the name of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.engine.certainty import Certainty
from preflight.engine.estimator import Estimator, refuse_unknown_model, tracing_of
from preflight.engine.points import measured_of, moments_of
from preflight.engine.standings import by_hand
from preflight.engine.trust import laws_of, named_by_user, trust_in
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import SettingsError, UsageError, suggestion
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.progress import Progress
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Value, brief
from preflight.vocabulary.words import assignment_text

if TYPE_CHECKING:
    from pydantic import ValidationError

    from preflight.engine.check import Analysis, CheckSetup
    from preflight.vocabulary.estimates import Holder, StepMoment
    from preflight.vocabulary.outcome import StudyResult
    from preflight.vocabulary.watched import MeasuredRun


FILES = (".yaml", ".yml", ".json", ".py", ".sh", ".sbatch", ".slurm")
"""Endings of files: no model is called so, and a path that was mistyped is not taken for one."""


class Subject(Struct, frozen=True):
    """The job, its GPU, and the function that estimates it. `held`: how each of its fields is known."""

    job: Job
    gpu: Gpu | None
    estimate: Callable[[Job], Estimates]
    tracing: Tracing
    estimator: Estimator
    note: str = ""
    standings: Mapping[str, Standing] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)
    result: StudyResult | None = None
    """The study that it is the worst combination of; None: values state it."""

    def moments(self, found: Estimates) -> Sequence[StepMoment]:
        """The moments of the step that the estimate replayed; empty if it replayed none."""
        if found.device is None or found.device.lower_bound:
            return ()
        if self.result is not None and self.result.moments is not None:
            return self.result.moments(self.job)
        return moments_of(self.job, self.gpu, self.tracing)

    def holders(self) -> Sequence[Holder]:
        """The user's lines that hold the most at the peak, where a dry run has seen them."""
        return self.result.holders(self.job) if self.result is not None and self.result.holders is not None else ()

    def runs(self) -> Sequence[MeasuredRun]:
        """The recorded runs of the job, unless they are not to count."""
        return measured_of(self.job, self.gpu) if self.estimator.calibration else ()


class EstimateRequest(Struct, frozen=True):
    """The options about the job on the command line."""

    overrides: dict[str, Value]
    gpu: str | None
    trust: tuple[str, ...]
    progress: Progress
    machine: str | None = None
    calibration: bool = False
    at: Mapping[str, Value] = field(default_factory=dict)
    """Of a search, the combination that is meant instead of the worst."""

    def where(self, source: Path) -> str:
        """Where the model is named: the option, or the file; "" where it is the argument itself."""
        if "model.name" in self.overrides:
            return "--set model.name"
        return str(source) if source.is_file() else ""


def subject_of(target: str, asked: EstimateRequest) -> Subject:
    """The job that TARGET names; of a search, its worst combination. Raises UsageError."""
    stated = of_values(target, asked)
    if stated is None:
        return _first(*analysis_of(Path(target), asked))
    if asked.at:
        raise UsageError(f"--at: {target} is no search")
    return stated


def of_values(target: str, asked: EstimateRequest) -> Subject | None:
    """The job that TARGET states by values: the name of a model, or a Job. None: it is a configuration. Raises
    UsageError."""
    path = Path(target)
    if path.is_dir():
        if (path / "config.json").is_file():  # a model as transformers saves it
            return _of_values({"model.path": target, **asked.overrides}, asked, path)
        raise UsageError(f"{target} is a directory; name one configuration, or use preflight check")
    if not path.exists():
        return _model(target, asked)
    from preflight.engine.job_by_hand import in_file

    job = in_file(path)
    return _of_values({**job, **asked.overrides}, asked, path) if job is not None else None


def _model(name: str, asked: EstimateRequest) -> Subject:
    from preflight.memory.device.law import catalogue
    from preflight.memory.device.resolve import target_of

    model = catalogue.find(name)
    target = target_of(name) if model is None else None
    if target is not None:  # all models of timm classify images; the other libraries' names are those of detectors
        task = "image-classification" if target.startswith("timm:") else "other"
        return _of_values({"model.target": target, "task": task, **asked.overrides}, asked, Path.cwd())
    if model is None and Path(name).suffix.lower() in FILES:
        raise UsageError(f"{name}: there is no such file")
    if model is None and "/" not in name and "model.name" not in asked.overrides:
        raise UsageError(f"there is no file {name}, and {catalogue.unknown_words(name)}")
    known = {"task": model.task} if model is not None else {}
    return _of_values({"model.name": name, **known, **asked.overrides}, asked, Path.cwd())


def _of_values(values: dict[str, object], asked: EstimateRequest, source: Path) -> Subject:
    """The subject of Job fields that `source` states, under the settings of the current directory.

    Raises UsageError for a value that its field does not accept.
    """
    from pydantic import ValidationError

    from preflight.engine.job_by_hand import completed
    from preflight.engine.settings import load

    settings, file = load(Path.cwd())
    try:
        job = build(completed({**settings.set, **values}))
    except ValidationError as error:
        raise UsageError(_words(error)) from error
    refuse_unknown_model(values, asked.where(source), UsageError)
    if asked.machine is not None:
        job = _on_machine(asked.machine, job, values)
    found = _gpu(asked.gpu, job, settings)
    if found is not None and job.machine.gpu is None:
        job = with_fields(job, {"machine.gpu": found.name})
    named = [*named_by_user(asked.trust), *laws_of(asked.overrides)]
    trust = trust_in(source if source.is_dir() else source.parent, named)
    tracing, notes = tracing_of(settings, file.parent if file is not None else Path.cwd(), trust)
    tracing = replace(tracing, progress=asked.progress)
    folder = source if source.is_dir() else source.parent
    held = by_hand(job, values.keys() | settings.set.keys(), lambda path: trust.accepts(folder / path), tracing)
    estimator = Estimator(found, tracing, asked.calibration)
    estimate = Certainty(held, estimator).estimate
    known = {name: one.standing for name, one in held.items()}
    return Subject(job, found, estimate, tracing, estimator, "; ".join(notes), known, held)


def _on_machine(name: str, job: Job, stated: Mapping[str, object]) -> Job:
    """The job on the node type with the least memory of a machine. What the user states stays. Raises UsageError."""
    from preflight.engine.target import machine_named, smallest_node

    node = smallest_node(machine_named(name, Path.cwd(), "--machine"))
    if node is None:
        return job
    given = {"gpu": node.gpu, "node_memory": node.memory, "swap": node.swap, "shm": node.shm, "cpus": node.cpus}
    values = {f"machine.{key}": value for key, value in given.items() if value is not None}
    return with_fields(job, {key: value for key, value in values.items() if key not in stated})


def _words(error: ValidationError) -> str:
    """The first error of a Job: a field that does not exist, or a value that its field does not accept."""
    from preflight.vocabulary.job import fields

    details = error.errors(include_url=False)[0]
    name = ".".join(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return f"{name} is not a Job field{suggestion(name, fields())}"
    message = details["msg"]
    return f"{name} = {brief(details['input'])}: {message[:1].lower()}{message[1:]}"


def _gpu(named: str | None, job: Job, settings: Settings) -> Gpu | None:
    """The GPU of the command line, the Job or the settings. An unknown GPU needs `machine.gpu_memory`."""
    from preflight.engine.target import gpu_named, gpu_of_settings
    from preflight.machines.gpus import find_gpu

    if named is not None:
        return gpu_named(named, "--gpu")
    default = gpu_of_settings(settings)
    if job.machine.gpu is not None:
        if job.machine.gpu_memory is not None:
            return find_gpu(job.machine.gpu)
        more = ", or state machine.gpu_memory" if default is None else ""
        return gpu_named(job.machine.gpu, "machine.gpu", more=more)
    return gpu_named(default.name, default.where, SettingsError) if default is not None else None


def analysis_of(path: Path, asked: EstimateRequest, rules: bool = False) -> tuple[Analysis, CheckSetup]:
    """The studies of a job file, and how they were judged; with `rules` its findings as well. Raises UsageError."""
    from preflight.engine.check import CheckOptions, analyse, setup
    from preflight.engine.files import batches

    batch = batches([str(path)], Path.cwd(), from_hook=False)[0]
    options = CheckOptions(
        asked.gpu,
        asked.machine,
        asked.overrides,
        trust=asked.trust,
        calibration=asked.calibration,
        progress=asked.progress,
        at=asked.at,
    )
    project, question = setup(batch, options, Path.cwd(), rules=rules)
    found = analyse(project, question)
    if not found.studies:
        problems = [finding.message for finding in found.findings] or [one.reason for one in found.skipped]
        raise UsageError(f"{path}: nothing to estimate: {'; '.join(problems) or 'nothing in it trains a model'}")
    return found, question


def _first(found: Analysis, question: CheckSetup) -> Subject:
    """The worst combination of the first study."""
    if question.options.at and not found.studies[0].study.is_search:
        raise UsageError(f"--at: {found.studies[0].study.paths[0]} is no search")
    subject = of_study(found.studies[0], question)
    if len(found.studies) > 1:
        return replace(subject, note=f"the first of {len(found.studies)} launches; preflight check judges all of them")
    return subject


def of_study(result: StudyResult, question: CheckSetup) -> Subject:
    """The worst combination of a study. Raises UsageError for one that was not judged."""
    if result.unjudged is not None:
        raise UsageError(f"{result.study.paths[0]} was not judged: {result.unjudged.words}")
    note = ""
    if result.study.is_search and result.space.worst.assignment:
        which = "the combination" if question.options.at else "the worst combination of the search"
        note = f"{which}: {assignment_text(result.space.worst.assignment)}"
    estimator = question.estimator_of(result)
    estimate = result.estimate or estimator.full
    job = result.space.worst.job
    return Subject(
        job, result.gpu, estimate, question.tracing, estimator, note, result.standings, result.held, result
    )  # fmt: skip
