"""Findings about files instead of studies: what cannot be read, what nobody recognises, what we failed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from preflight.vocabulary.errors import debug_traceback, too_much
from preflight.vocabulary.findings import Confidence, Finding, Severity, of_problem
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.study import Skipped
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Origin, Span

_NAMED = 3
"""Files that a note names; more are counted."""


def crash(what: str, error: BaseException, origin: Origin | None) -> Finding:
    """A bug of ours as a finding; the traceback is for those who ask for it. What Python itself refuses is not ours."""
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
        if one.kind == "crashed":
            yield Finding("internal-error", Severity.error, Confidence.high, f"{one.path}: {one.reason}", origin)
        elif one.kind == "unreadable" and one.path in named:
            message = f"{one.path} cannot be read: {one.reason}"
            yield Finding("unreadable-file", Severity.error, Confidence.high, message, origin)
        else:
            problems = one.problems or (_malformed(one, project) if one.path in named else ())
            if problems and (one.kind == "no-training" or one.path in named or _sure(one.path, project)):
                yield from (of_problem(problem) for problem in problems)


def refused(skipped: Iterable[Skipped], found: Iterable[Finding], named: Collection[str]) -> Iterator[str]:
    """Named files that no dialect recognises and that have no finding that says why."""
    named = frozenset(named)
    told = {finding.origin.path for finding in found if finding.origin is not None}
    for one in skipped:
        if one.kind == "unrecognised" and one.path in named and one.path not in told:
            yield one.path


def _malformed(one: Skipped, project: Project) -> tuple[Problem, ...]:
    """Why nobody recognises a file that was named: often it only cannot be parsed."""
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
        return (Problem("invalid-config", error.message, Origin(one.path, error.span)),)
    return ()


def _sure(path: str, project: Project) -> bool:
    """Whether a reader claims a file that cannot be parsed to the end (a template, say, belongs to nobody)."""
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
    """What happened to files that nobody named and that leave no finding, the first few by name."""
    left = [one for one in skipped if one.kind == "unreadable" and one.path not in named and "." in one.path]
    yield from (f"{one.path} was left out: {one.reason}" for one in left[:_NAMED])
    if len(left) > _NAMED:
        yield f"{len(left) - _NAMED} more files were left out"
