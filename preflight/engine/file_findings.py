"""Findings about files instead of studies: unreadable files, files that no dialect recognises, internal errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from preflight.vocabulary.budgets import PROOF_SECONDS, PROOFS
from preflight.vocabulary.errors import debug_traceback, too_much
from preflight.vocabulary.findings import Confidence, Finding, Severity, of_problem
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.progress import Deadline
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Problem, Unread, cannot_be_parsed
from preflight.vocabulary.study import Skipped
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Cause, Origin, Span
from preflight.vocabulary.words import plural

_NAMED = 3
"""Files that a note names; more are counted."""
_BROKEN_ON_PURPOSE = frozenset({"fixtures", "__fixtures__", "testdata", "test_data"})
"""Folders whose files test a reader: what cannot be parsed there is meant so, and nobody submits it."""


def crash(what: str, error: BaseException, origin: Origin | None) -> Finding:
    """An internal error as a finding; the traceback is shown on request. A limit of Python is no internal error."""
    if origin is not None and (why := too_much(error)):
        return Finding("invalid-config", Severity.error, Confidence.high, f"{what}: it {why}", origin)
    return Finding(
        rule="internal-error",
        severity=Severity.error,
        confidence=Confidence.high,
        message=f"{what}: {type(error).__name__}: {error}",
        origin=origin,
        help=("this is a bug in preflight or in a rule: please report it with the file; PREFLIGHT_DEBUG=1 shows more",),
        notes=debug_traceback(error),
    )


def findings(skipped: Iterable[Skipped], project: Project, named: Collection[str]) -> Iterator[Finding]:
    """Findings about files that made no study. Files that were only found are reported if a reader was sure of them."""
    named = frozenset(named)
    for one in skipped:
        origin = Origin(one.path, Span(0, 0))
        if one.kind == "time-limit":
            continue  # `time_over` counts them
        if one.kind == "crashed":
            yield Finding("internal-error", Severity.error, Confidence.high, f"{one.path}: {one.reason}", origin)
        elif one.kind == "unreadable" and one.path in named:
            message = f"{one.path} cannot be read: {one.reason}"
            yield Finding("unreadable-file", Severity.error, Confidence.high, message, origin)
        else:
            if one.kind == "malformed" and one.path not in named and _BROKEN_ON_PURPOSE & {*one.path.split("/")[:-1]}:
                continue
            problems = one.problems or (_malformed(one, project) if one.path in named else ())
            if problems and (one.kind == "no-training" or one.path in named or _sure(one.path, project)):
                yield from (of_problem(problem) for problem in problems)


def time_over(
    deadline: Deadline,
    studies: Sequence[StudyResult],
    skipped: Iterable[Skipped],
    files: int,
    unproved: int,
    whole: bool,
) -> Finding:
    """What there was no time for: some of `files` files, some of the studies, fixes of `unproved` findings, or (not
    `whole`) what rules say about all studies together."""
    unread = [one.path for one in skipped if one.kind == "time-limit"]
    unjudged = [result.study.paths[0] for result in studies if result.late]
    said = [
        (len(unread), f"of {plural(files, 'file')}", "read"),
        (len(unjudged), f"of {plural(len(studies), 'study')}", "judged"),
        (unproved, "fix" if unproved == 1 else "fixes", "proved"),
        (0 if whole else 1, "rule about all studies", "asked"),
    ]
    message = ", ".join(f"{n:,} {of} {'was' if n == 1 else 'were'} not {done}" for n, of, done in said if n)
    return Finding(
        rule="time-limit",
        severity=Severity.warning,
        confidence=Confidence.high,
        message=f"{message} {deadline}",
        origin=None,
        notes=tuple(
            f"{what}: {', '.join(paths[:_NAMED])}{f' and {len(paths) - _NAMED} more' if len(paths) > _NAMED else ''}"
            for what, paths in (("not read", unread), ("not judged", unjudged))
            if paths
        ),
        help=("everything else was checked; a longer time limit, or fewer files at a time, checks the rest",),
    )


def refused(skipped: Iterable[Skipped], found: Iterable[Finding], named: Collection[str]) -> Iterator[str]:
    """Named files that no dialect recognises and that have no finding that says why."""
    named = frozenset(named)
    told = {finding.origin.path for finding in found if finding.origin is not None}
    for one in skipped:
        if one.kind == "unrecognised" and one.path in named and one.path not in told:
            yield one.path


def _malformed(one: Skipped, project: Project) -> tuple[Problem, ...]:
    """Why no dialect recognises a file that was named: often it cannot be parsed."""
    if one.kind != "unrecognised":
        return ()

    try:
        if one.path.endswith(".py"):
            from preflight.documents.python import parse_python

            parse_python(project.source(one.path))
        elif one.path.lower().endswith((".yaml", ".yml")):
            from preflight.documents.yaml import parse_yaml

            parse_yaml(project.source(one.path))
    except DocumentError as error:
        return (cannot_be_parsed(one.path, error),)
    return ()


def _sure(path: str, project: Project) -> bool:
    """Whether a reader claims a file that cannot be parsed to the end (no reader claims a template)."""
    from preflight.dialects import recognise

    try:
        return recognise(project.source(path), project) is not None
    except (DocumentError, UnreadableFile):
        return False
    except Exception as error:
        if too_much(error):
            return True
        raise


def notes(skipped: Iterable[Skipped], named: Collection[str]) -> Iterator[str]:
    """Notes about files that the user did not name and that have no finding; the first few by name."""
    left = [one for one in skipped if one.kind == "unreadable" and one.path not in named and "." in one.path]
    yield from (f"{one.path} was left out: {one.reason}" for one in left[:_NAMED])
    if len(left) > _NAMED:
        yield f"{len(left) - _NAMED} more files were left out"


def not_listed(folders: Sequence[str]) -> Iterator[str]:
    """Notes about folders that may not be listed; the first few by name."""
    yield from (f"{one}/ was left out: its files cannot be listed" for one in folders[:_NAMED])
    if len(folders) > _NAMED:
        yield f"{len(folders) - _NAMED} more folders were left out: their files cannot be listed"


def unread(part: Unread) -> Finding:
    """A finding about a part of a file that is over a budget. What a program needs is often unknown; a job that was not
    seen is not said to be missing anywhere else."""
    rest = "the program is not judged" if part.whole else "what it starts beyond that was not checked, and is unknown"
    severity = Severity.info if part.whole else Severity.warning
    return Finding("invalid-config", severity, Confidence.high, f"{part.why.words}: {rest}", part.origin)


def unproved(findings: Iterable[Finding]) -> Iterator[str]:
    """A note about findings whose fixes were not tried, since a budget of proofs was used up."""
    count = sum(one.unproved is Cause.budget for one in findings)
    if count:
        why = f"a check makes at most {PROOFS} {PROOFS.of}, in {PROOF_SECONDS} {PROOF_SECONDS.of}"
        yield f"fixes of {plural(count, 'finding')} were not proved, and are not offered: {why}"
