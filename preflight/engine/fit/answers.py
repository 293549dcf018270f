"""The answers of `preflight fit` for a job, or for every part of the search of a study."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.engine.check import Analysis, CheckSetup
from preflight.engine.fit.orders import ORDERS, usual_fields
from preflight.engine.fit.question import Question
from preflight.engine.fit.solve import solve
from preflight.vocabulary.fits import Answer, FitOf
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.values import Value


def of_job(question: Question, fields: Sequence[str], gpu: str) -> FitOf:
    """The answers for a job; for the usual fields if none are named."""
    named = fields or usual_fields(question.job)
    return FitOf(question.job, gpu, tuple(solve(field, question) for field in named), {}, {})


def of_study(result: StudyResult, found: Analysis, asked: CheckSetup, fields: Sequence[str]) -> tuple[FitOf, ...]:
    """The answers for each part of a study: a single job, or a box of a search with its worst combination."""
    estimator = asked.estimators[result.gpu]
    parts = []
    for verdict in result.space.boxes:
        box, job = verdict.box, verdict.worst.job
        constraints = found.project.settings.constraints
        question = Question(job, estimator, result.held, result.study, box, constraints)
        asked.progress.check()
        answers = tuple(solve(field, question) for field in fields or usual_fields(job))
        gpu = result.gpu.name if result.gpu is not None else ""
        worst: dict[str, Value] = dict(verdict.worst.assignment) if box.memory_axes else {}
        parts.append(FitOf(job, gpu, answers, box.fixed, worst))
    return tuple(parts)


def decisive(parts: Sequence[FitOf], field: str) -> Answer | None:
    """The answer for a field that holds in every part; None if one part has none."""
    found = [answer for part in parts for answer in part.answers if answer.field == field]
    values = [answer.value for answer in found]
    if not found or any(not isinstance(value, int) for value in values):
        return None
    largest = ORDERS[field].kind == "largest"
    pick = min if largest else max
    return pick(found, key=lambda answer: answer.value if isinstance(answer.value, int) else 0)
