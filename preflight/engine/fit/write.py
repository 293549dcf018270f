"""Writes an answer of `preflight fit` into the files, by the proof that every fix has.

The answer becomes a finding, "this field does not have the value that was solved for", with proposals that change it.
The finding is gone if the files, read again with the edit, make a job that has the value and fits.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import Analysis, CheckSetup, again
from preflight.engine.fit.orders import ACCUMULATION, BATCH, GPU, GPUS
from preflight.engine.fit.question import fitting
from preflight.engine.fit.solve import decisive, of_study
from preflight.engine.registry import rules
from preflight.fixes.plan import edited
from preflight.fixes.what_if import settable
from preflight.vocabulary.findings import Change, Confidence, Finding, Fix, Proposal, Safety, Severity
from preflight.vocabulary.fits import Answer
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Case

RULE = "fit"
"""The name of the finding. It is never reported."""


class Written(Struct, frozen=True):
    """The project with the fixes of some studies in memory, and the fix of each study (None: none is proved)."""

    analysis: Analysis
    texts: dict[str, str]
    fixes: dict[int, Fix]


def fix_of(index: int, answer: Answer, found: Analysis, asked: CheckSetup) -> Fix | None:
    """The proved change of the files that writes the answer of a study; None where the value is written already, where
    no text decides it, or where no change can be proved."""
    case = next((one for one in found.cases if one.index == index), None)
    if case is None or answer.field in (GPU, GPUS) or answer.stated == answer.value:
        return None
    for proposal in _proposals(case, answer):
        fix = _proved(index, answer, proposal, found, asked)
        if fix is not None:
            return fix
    return None


def _proposals(case: Case, answer: Answer) -> Iterator[Proposal]:
    """Changes that write the answer: those of rules that know their safety, else the plain one, which is unsafe."""
    value = answer.value
    if not isinstance(value, int):
        return
    known = [one for rule in rules().values() for one in rule().proposals_for(case, answer.field, value)]
    yield from sorted(known, key=lambda one: one.safety is Safety.unsafe)
    if not known and answer.field not in (BATCH, ACCUMULATION) and settable(case, answer.field):
        title = f"{answer.field} {answer.stated} -> {value}"
        change = Change(answer.field, value)
        yield Proposal(title, (change,), Safety.unsafe, f"another value of {answer.field} is another run")


def _proved(index: int, answer: Answer, proposal: Proposal, found: Analysis, asked: CheckSetup) -> Fix | None:
    from preflight.fixes.proof import Prover

    finding = Finding(
        RULE, Severity.info, Confidence.high, answer.title, None, (answer.field,), study=index, proposals=(proposal,),
    )  # fmt: skip

    def after(project: Project) -> Analysis:
        fresh = again(found, project, asked)
        done = index < len(fresh.studies) and _holds(fresh.studies[index], proposal, answer)
        return fresh if done else replace(fresh, findings=(*fresh.findings, finding))

    before = replace(found, findings=(*found.findings, finding))
    return Prover(before, after).fixed(finding)[0]


def _holds(result: StudyResult, proposal: Proposal, answer: Answer) -> bool:
    """Whether every worst combination has the values of the proposal, and fits."""
    for verdict in result.space.boxes:
        job = verdict.worst.job
        if any(job.get(change.field) != change.value for change in proposal.changes):
            return False
        if not fitting(verdict.worst.estimates, answer.memory):
            return False
    return True


def written(found: Analysis, asked: CheckSetup, field: str, unsafe: bool) -> Written:
    """The fixes of all studies, one after another, each proved with those before it in place."""
    texts: dict[str, str] = {}
    fixes: dict[int, Fix] = {}
    for index in range(len(found.studies)):
        if index >= len(found.studies):
            break
        answer = decisive(of_study(found.studies[index], found, asked, (field,)), field)
        fix = fix_of(index, answer, found, asked) if answer is not None else None
        if fix is None:
            continue
        fixes[index] = fix
        changed = edited(found.project, fix.edits)
        if changed and (unsafe or fix.safety is Safety.safe):
            texts |= changed
            found = _judged_anew(found, texts, asked)
    return Written(found, texts, fixes)


def _judged_anew(found: Analysis, texts: dict[str, str], asked: CheckSetup) -> Analysis:
    """The whole project with the new texts: the cases of its studies are made anew, too."""
    from preflight.engine.check import analyse

    return analyse(found.project.with_overlay(texts), asked)
