"""Runs a check: files to studies, estimates, findings, fixes. An error on the way becomes a finding."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.engine import file_findings, registry, suppress
from preflight.engine.certainty import Certainty
from preflight.engine.dry_runs import Found, SavedRuns, held_with
from preflight.engine.estimator import Estimator, refuse_unknown_model, tracing_of
from preflight.engine.files import Batch, checkout
from preflight.engine.measured import with_measured
from preflight.engine.named_models import with_named_folders, with_named_sizes, with_saved_types
from preflight.engine.points import at, first_job, measured_of, moments_of, points_of
from preflight.engine.seen_estimator import SeenEstimator, seen_by
from preflight.engine.standings import standings, union, without_doubtful_lengths
from preflight.engine.target import Named, Wanted, choose, placed, wanted
from preflight.engine.trust import Trust, laws_of, named_by_user, trust_in
from preflight.system.files import real
from preflight.vocabulary.budgets import ProofTime, TraceTime
from preflight.vocabulary.errors import PreflightError, SettingsError, UsageError
from preflight.vocabulary.estimates import DeviceEstimate, Holder, StepMoment
from preflight.vocabulary.findings import Finding, Proposal, Safety, Severity, of_problem
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.progress import QUIET, Progress, TimeOver
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.study import Skipped, Study
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Cause, Origin, Span, Unknown, Value


class CheckOptions(Struct, frozen=True):
    """The options of a check on the command line."""

    gpu: str | None = None
    machine: str | None = None
    set: Mapping[str, Value] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    progress: Progress = QUIET
    """What says on a terminal what is done, and until when it may be done."""
    calibration: bool = False
    """Whether recorded runs of this user count."""
    at: Mapping[str, Value] = field(default_factory=dict)
    """Of searches, one combination instead of all: a value for each parameter that memory depends on."""


class CheckSetup(Struct, frozen=True, eq=False):
    """The parts of a check that stay the same when files are read again on a copy: paths, options, machines, rules."""

    named: tuple[str, ...]
    walked: tuple[str, ...]
    options: CheckOptions
    said: Wanted
    rules: tuple[type[Rule], ...]
    enabled: frozenset[str]
    tracing: Tracing
    trust: Trust | None = None
    estimators: dict[Gpu | None, Estimator] = field(default_factory=dict)
    """Estimates, kept when the files are read again."""
    proofs: ProofTime = field(default_factory=ProofTime)
    dry_runs: SavedRuns | None = None
    """Saved dry runs, which answer where the files do not."""
    by_run: dict[int, tuple[Study, SeenEstimator]] = field(default_factory=dict)
    """The estimator of each study of which a dry run speaks, by the identity of the study."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.named, *self.walked)

    @property
    def progress(self) -> Progress:
        return self.tracing.progress

    def accepts(self, path: Path) -> bool:
        """Whether the user accepts a file that decides figures (see `Trust.accepts`)."""
        return self.trust is not None and self.trust.accepts(path)

    def estimator_of(self, result: StudyResult) -> Estimator:
        """The estimator that judged a study."""
        _, of_run = self.by_run.get(id(result.study), (None, None))
        return of_run or self.estimators[result.gpu]

    def only(self, paths: Collection[str]) -> CheckSetup:
        """The same question about some of the paths."""
        named, walked = ([path for path in group if path in paths] for group in (self.named, self.walked))
        return replace(self, named=tuple(named), walked=tuple(walked))


class Analysis(Struct, frozen=True, dict=True):
    """Studies with their verdicts, findings as the rules gave them (nothing proved or suppressed), files left out."""

    project: Project
    studies: tuple[StudyResult, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    cases: tuple[Case, ...] = ()
    """The studies as rules see them; none where only some of them were read again."""

    @property
    def incomplete(self) -> bool:
        """Whether there was no time to read a file or to judge a study."""
        late = any(one.kind == "time-limit" for one in self.skipped)
        return late or any(result.late for result in self.studies)

    @cached_property
    def readers(self) -> Mapping[str, Sequence[int]]:
        """File -> the studies that read it, by index."""
        from preflight.fixes.launches import readers

        return readers(self.studies)

    def started_by(self, path: str) -> tuple[Study, ...]:
        """The studies of a file of the project that was not checked."""
        from preflight.study.build import build

        return build((path,), self.project)[0]


def setup(batch: Batch, options: CheckOptions, cwd: Path, rules: bool = True) -> tuple[Project, CheckSetup]:
    """The project and how to check it; without `rules` its studies only. Raises PreflightError for unknown names."""
    options = replace(options, trust=named_by_user(options.trust))
    known = registry.rules(options.trust) if rules else {}
    enabled = registry.enabled(batch.settings, options.select, options.ignore, known) if rules else frozenset()
    gpu = Named(options.gpu, "--gpu") if options.gpu else None
    if gpu is None and "machine.gpu" in options.set:
        gpu = Named(str(options.set["machine.gpu"]), "--set machine.gpu")
    trust = trust_in(batch.root, [*options.trust, *laws_of(options.set)])
    said = wanted(options.machine, gpu, batch.settings, batch.root, cwd, trust)
    refuse_unknown_model(options.set, "--set model.name", UsageError)
    refuse_unknown_model({**batch.settings.set, **options.set}, "tool.preflight.set", SettingsError)
    for rule in known.values():
        registry.options_of(rule, batch.settings)
    tracing, notes = tracing_of(batch.settings, batch.root, trust)
    tracing = replace(tracing, progress=options.progress, time=TraceTime())
    chosen = tuple(rule for name, rule in known.items() if name in enabled)
    said = replace(said, notes=(*said.notes, *notes, *file_findings.not_listed(batch.unlisted)))
    return Project(batch.root, batch.settings), CheckSetup(
        batch.named, batch.walked, options, said, chosen, enabled, tracing, trust,
        dry_runs=SavedRuns(batch.root, trust.accepts),
    )  # fmt: skip


def check(project: Project, asked: CheckSetup, prove: bool = True) -> Report:
    """One project's report."""
    found = analyse(project, asked)
    findings = list(found.findings)
    if prove:
        findings = _proved(found, asked)
    try:
        findings += list(_of_run(found.cases, asked))
        whole = True
    except TimeOver:
        whole = False
    late = _time_over(found, findings, whole, asked)
    findings += [late] if late is not None else []
    findings = [_as_set(finding, project.settings) for finding in findings]
    read = tuple(dict.fromkeys(path for result in found.studies for path in result.study.paths))
    idle = tuple(one.path for one in found.skipped if one.kind in ("no-training", "malformed"))
    findings, by_glob = suppress.per_file(findings, project.settings.per_file_ignores)
    known = {*registry.rules(asked.options.trust), *registry.OWN}
    # A comment may speak of what was not judged; a date is over all the same.
    enabled = asked.enabled & {suppress.EXPIRED} if found.incomplete else asked.enabled
    findings, by_comment = suppress.inline(findings, project, (*read, *idle), enabled, known)
    given, told = set(asked.paths), {*read, *idle}
    return Report(
        project=project,
        findings=tuple(sorted(findings, key=_order)),
        studies=found.studies,
        files=tuple(path for path in dict.fromkeys((*asked.paths, *read)) if path in told and path in given),
        unrecognised=tuple(one.path for one in found.skipped if one.kind in ("unrecognised", "unreadable", "crashed")),
        refused=tuple(file_findings.refused(found.skipped, found.findings, asked.named)),
        suppressed=by_glob + by_comment,
        notes=(
            *asked.said.notes,
            *file_findings.notes(found.skipped, asked.named),
            *file_findings.unproved(findings),
            *(asked.dry_runs.notes if asked.dry_runs is not None else ()),
        ),
        incomplete=late.message if late is not None else "",
    )


def _time_over(found: Analysis, findings: Iterable[Finding], whole: bool, asked: CheckSetup) -> Finding | None:
    """What there was no time for; None where the check came to its end."""
    deadline = asked.progress.deadline
    unproved = sum(finding.unproved is Cause.time_limit for finding in findings)
    if deadline is None or (whole and not found.incomplete and not unproved):
        return None
    files = len(set(asked.paths))
    return file_findings.time_over(deadline, found.studies, found.skipped, files, unproved, whole)


def analyse(project: Project, asked: CheckSetup) -> Analysis:
    """Files to studies to findings, without fixes. This part runs again on a copy with edits."""
    from preflight.study.build import build

    studies, skipped = build(asked.paths, project, asked.options.set, asked.progress)
    chosen = [at(study, asked.options.at) for study in studies] if asked.options.at else studies
    return _judged_all(chosen, skipped, project, asked)


def _judged_all(
    studies: Sequence[Study], skipped: tuple[Skipped, ...], project: Project, asked: CheckSetup
) -> Analysis:
    """Studies to verdicts and findings. The rules are asked about a study as soon as those are judged that run at the
    same time: when the time is over, a study is done or was not looked at."""
    results: dict[int, StudyResult] = {}
    cases: dict[int, Case] = {}
    findings: list[Finding] = []
    done = 0  # studies about which the rules were asked
    progress = asked.progress
    try:
        for number, study in enumerate(studies):
            with progress.shown(f"judging study {number + 1} of {len(studies)} ({study.paths[0]})"):
                progress.check()
                try:
                    if study.unread is not None:
                        results[number] = _not_judged(study, study.unread.why)
                        findings.append(file_findings.unread(study.unread))
                    else:
                        results[number], cases[number] = _judged(study, len(results), project, asked)
                except PreflightError:
                    raise  # the settings are wrong, not the study
                except Exception as error:
                    findings.append(_crash(study, error))
                while done <= number and all(other <= number for other in studies[done].concurrent_with):
                    findings += list(_findings_of(done, cases, asked))
                    done += 1
    except TimeOver:
        cases = {number: case for number, case in cases.items() if number < done}
        results = {number: result for number, result in results.items() if number < done}
        late = Unknown(f"it was not judged {progress.deadline}", Cause.time_limit)
        for number, study in enumerate(studies[done:], done):
            try:
                results[number] = _not_judged(study, late)
            except Exception as error:
                findings.append(_crash(study, error))
    findings += file_findings.findings(skipped, project, asked.named)
    return Analysis(project, tuple(results.values()), tuple(_once(findings)), skipped, tuple(cases.values()))


def _crash(study: Study, error: Exception) -> Finding:
    return file_findings.crash(f"{study.paths[0]} could not be estimated", error, Origin(study.paths[0], Span(0, 0)))


def _not_judged(study: Study, why: Unknown) -> StudyResult:
    from preflight.space.judge import not_judged

    return StudyResult(study, not_judged(study, why), unjudged=why)


def _findings_of(number: int, cases: Mapping[int, Case], asked: CheckSetup) -> Iterator[Finding]:
    """What the rules say about one study, and nothing about one that could not be estimated."""
    case = cases.get(number)
    if case is not None:
        beside = tuple(cases[other] for other in case.study.concurrent_with if other in cases)
        yield from _findings(replace(case, beside=beside) if beside else case, asked)


def _judged(study: Study, index: int, project: Project, asked: CheckSetup) -> tuple[StudyResult, Case]:
    """A study with its verdict, and the case that the rules are asked about."""
    target = choose(study, asked.said)
    study = placed(without_doubtful_lengths(with_saved_types(with_named_sizes(with_named_folders(study)))), target)
    estimator = asked.estimators.setdefault(target.gpu, Estimator(target.gpu, asked.tracing, asked.options.calibration))
    seen = asked.dry_runs.of(study, project.overlay) if asked.dry_runs is not None else Found(study)
    study, sampled = with_measured(seen.study, project.root) if asked.options.calibration else (seen.study, ())
    moments: Callable[[Job], Sequence[StepMoment]] = partial(moments_of, gpu=target.gpu, tracing=asked.tracing)
    holders: Callable[[Job], Sequence[Holder]] | None = None
    held = [
        standings(study, box, lambda path: asked.accepts(project.root / path), asked.tracing) for box in study.boxes
    ]
    if seen.kept is not None:
        estimator = of_run = seen_by(seen.kept, first_job(study.boxes[0]), estimator)
        asked.by_run[id(study)] = study, of_run
        if of_run.speaks:
            held = [held_with(one, seen.kept, study) for one in held]
            moments, holders = partial(seen.kept.run.timeline, gpu=target.gpu), seen.kept.run.holders
    if target.larger:
        gpu = Held(Standing.read, f"its name may mean {' or '.join(target.larger)} as well", target.larger)
        held = [{**one, "machine.gpu": gpu} for one in held]
    certainty = Certainty(known_so := union(held), estimator)
    estimate, space = certainty.estimate, certainty.space(study, project.settings.constraints)
    least = smallest(space.worst.estimates.device, space.worst.job) if target.gpu is None else None
    worst = next(index for index, one in enumerate(space.boxes) if one.worst is space.worst)
    known = {name: one.standing for name, one in held[worst].items()}
    recorded = estimator.said(space.worst.job, space.worst.estimates.device)
    result = StudyResult(
        study, space, target.gpu, target.cluster, target.node, least, (*target.notes, *recorded, *sampled), estimate,
        known, known_so, remarks=seen.notes_on(space.worst.job, space.worst.estimates), outdated=seen.outdated,
        points=partial(points_of, study, estimate), moments=moments, holders=holders,
        measured=partial(measured_of, gpu=target.gpu) if asked.options.calibration else None,
    )  # fmt: skip
    case = Case(
        study, index, project, project.settings, space, estimate, target.gpu, target.cluster, target.node,
        tracing=asked.tracing, may_fit=estimator.may_fit, verdict=estimator.verdict,
        unsure=lambda: certainty.unsure(space.worst.job),
    )  # fmt: skip
    return result, case


def smallest(device: DeviceEstimate | None, job: Job | None) -> Gpu | None:
    """The GPU with the least memory that certainly holds the job, its own context counted, and can compute it.

    None for `job`: what it computes with is not known."""
    if device is None or device.lower_bound or device.capacity is not None:
        return None
    from preflight.machines.gpus import smallest_that_fits

    reserved = device.reserved.high
    return smallest_that_fits(lambda gpu: reserved + gpu.context[2], job)


def _findings(case: Case, asked: CheckSetup) -> Iterator[Finding]:
    """Findings of the rules about one study. A rule that raises is reported, and the others continue."""
    for rule in asked.rules:
        options = registry.options_of(rule, case.settings)
        own = case if rule.options is Options else replace(case, options=options)
        time = asked.tracing.time if rule.remark else None
        with time.for_remarks() if time is not None else nullcontext():
            found = _said(rule, case, partial(rule().check, own))
        for finding in found:
            place = finding.origin or Origin(case.study.paths[0], Span(0, 0))
            yield replace(finding, study=case.index, origin=place)
    claimed = {rule.name for rule in asked.rules} | set(registry.rules(asked.options.trust))
    for problem in case.study.problems:
        if problem.rule not in claimed:
            yield replace(of_problem(problem), study=case.index)


def _of_run(cases: Sequence[Case], asked: CheckSetup) -> Iterator[Finding]:
    """Findings of the rules about all studies together."""
    for rule in asked.rules if cases else ():
        if rule.check_run is Rule.check_run:
            continue  # it has nothing to say about all studies together
        options = registry.options_of(rule, cases[0].settings)
        own = [replace(case, options=options) for case in cases]
        yield from _said(rule, cases[0], partial(rule().check_run, own))


def _said(rule: type[Rule], case: Case, ask: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """A rule's findings; where it raises, that it did."""
    try:
        return list(ask())
    except (PreflightError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a rule that exits (SystemExit) must not end the check as if all were well
        return [file_findings.crash(f"the rule {rule.name} failed", error, Origin(case.study.paths[0], Span(0, 0)))]


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """A file that several studies read is reported once."""
    seen = set()
    for finding in findings:
        key = (finding.rule, finding.origin, finding.message)
        if key not in seen:
            seen.add(key)
            yield finding


def _proved(found: Analysis, asked: CheckSetup) -> list[Finding]:
    """The findings, each with the first of its proposals that can be proved in time."""
    findings = [_promoted(finding, found.project.settings) for finding in found.findings]
    if not any(finding.proposals for finding in findings):
        return findings
    from preflight.fixes.proof import prove

    asked.proofs.files = len(set(asked.paths))
    return list(
        prove(findings, found, lambda project: _whole(again(found, project, asked)), asked.progress, asked.proofs)
    )


def _whole(found: Analysis) -> Analysis:
    """The analysis; raises TimeOver where it lacks a part, since a finding of that part would seem to be gone."""
    if found.incomplete:
        raise TimeOver("it was not checked again in time")
    return found


def again(found: Analysis, project: Project, asked: CheckSetup) -> Analysis:
    """The analysis of a project in which some texts differ: only studies of files that start something, and lead to one
    of these texts, are made anew. Files that make no study are not listed again."""
    from preflight.study.build import rebuild

    changed = {path for path, text in project.overlay.items() if found.project.overlay.get(path) != text}
    roots = {found.studies[index].study.paths[0] for path in changed for index in found.readers.get(path, ())}
    reading = {index for root in roots for index in found.readers[root]}
    concerned = sorted(index for index in reading if found.studies[index].study.paths[0] in roots)
    rebuilt = rebuild([found.studies[index].study for index in concerned], project, asked.options.set)
    if rebuilt is None or changed - {path for index in concerned for path in found.studies[index].study.paths}:
        return analyse(project, asked)
    part = _judged_all(*rebuilt, project, asked)
    if len(part.studies) != len(concerned):
        return analyse(project, asked)
    near = changed.union(*(found.studies[index].study.paths for index in concerned))
    studies = list(found.studies)
    for index, result in zip(concerned, part.studies, strict=True):
        studies[index] = result
    gone = set(concerned)
    kept = [one for one in found.findings if _elsewhere(one, gone, near)]
    moved = [one if one.study is None else replace(one, study=concerned[one.study]) for one in part.findings]
    return Analysis(project, tuple(studies), (*kept, *moved), ())


def _elsewhere(finding: Finding, concerned: set[int], near: set[str]) -> bool:
    if finding.study is not None:
        return finding.study not in concerned
    return finding.origin is None or finding.origin.path not in near


def _promoted(finding: Finding, settings: Settings) -> Finding:
    """The finding with its proposals as safe as the settings call them."""
    said = settings.rules.get(finding.rule)
    wish = said.fix if said is not None else None
    if wish is None:
        return finding
    if wish == "never":
        return suppress.without_fix_of(finding)
    proposals: tuple[Proposal, ...] = tuple(replace(one, safety=Safety(wish)) for one in finding.proposals)
    return replace(finding, proposals=proposals)


def _as_set(finding: Finding, settings: Settings) -> Finding:
    said = settings.rules.get(finding.rule)
    severity = said.severity if said is not None else None
    return finding if severity is None else replace(finding, severity=Severity(severity))


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    origin = finding.origin
    if origin is None:
        return "", 0, 0, finding.rule, finding.message
    return origin.path, origin.span.start, -finding.severity.rank, finding.rule, finding.message


def outcome_of(reports: Sequence[Report], cwd: Path, notes: Sequence[str] = ()) -> Outcome:
    """Reports as formats take them, with the paths they are shown under."""
    roots = [report.project.root for report in reports]
    base = real(cwd)
    if len(roots) == 1:
        root = roots[0]
    elif all(root.is_relative_to(base) for root in roots):
        root = base
    else:
        root = Path(os.path.commonpath(roots))
    from preflight.engine.questions import questions_of

    return Outcome(
        tuple(reports),
        root,
        base,
        registry.summaries(),
        tuple(notes),
        checkout(root),
        dict(registry.rules()),
        questions_of(result for report in reports for result in report.studies),
    )
