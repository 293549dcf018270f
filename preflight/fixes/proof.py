"""Proof of fixes: a fix is applied to a copy in memory, and the copy is checked again, before the fix is offered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from preflight.documents.render import language_of
from preflight.fixes import yaml_round_trip
from preflight.fixes.changed_routes import only_meant
from preflight.fixes.compare import Difference, Intent, carried_over
from preflight.fixes.compare_slices import unintended
from preflight.fixes.costs import costs_of
from preflight.fixes.launches import CheckResult, Launches, listed
from preflight.fixes.overridden import overridable
from preflight.fixes.plan import by_path, edited, on_command_line, plan
from preflight.system import observed
from preflight.vocabulary.budgets import PROOF_SECONDS, PROOFS, ProofTime
from preflight.vocabulary.findings import Finding, Fix, Proposal, Safety
from preflight.vocabulary.progress import QUIET, Progress, TimeOver
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Cause

CheckAgain = Callable[[Project], CheckResult]

READ_AS_1_2 = frozenset({"compose", "kubernetes"})
"""Dialects whose files are read by the core schema of YAML 1.2. PyYAML reads the files of all other dialects."""

_Key = tuple[str, "int | None", tuple[str, ...], str]


def prove(
    findings: Sequence[Finding],
    found: CheckResult,
    again: CheckAgain,
    progress: Progress = QUIET,
    clock: ProofTime | None = None,
) -> Iterator[Finding]:
    """The findings in their order. The first of a finding's proposals that is proved becomes its fix.

    `found` is the result of a check; `again` checks another state of the project in the same way. It raises TimeOver
    where it could not check all of it: half a check proves nothing. `clock` counts the time of all proofs of a run.
    """
    prover = Prover(found, again, clock)
    proposed = [number for number, finding in enumerate(findings) if finding.proposals]
    proved: dict[int, Proved] = {}
    started = time.process_time()
    for done, number in enumerate(proposed):
        spent = time.process_time() - started
        if done and spent > ALONE_S and spent / done * (len(proposed) - done) > ALONE_S:
            proved |= _on_all_processors(prover, findings, proposed[done:], progress)
            break
        place = f"proving fix {done + 1} of {len(proposed)} ({_named(findings[number])})"
        proved[number] = _proved(prover, findings[number], progress, place)
    for number, finding in enumerate(findings):
        yield finding if number not in proved else _with(finding, *proved[number])


Proved = tuple["Fix | None", tuple[str, ...], "Cause | None"]
"""The fix of a finding, its further notes, and why its proposals were not tried, if they were not."""

ALONE_S = 2.0
"""Seconds of the processor that proofs take alone; if as many are left, all processors are used. To copy this process
takes some hundredths."""

_NOT_PROVED = "a fix is possible, but was not proved"


def _on_all_processors(
    prover: Prover, findings: Sequence[Finding], numbers: Sequence[int], progress: Progress
) -> dict[int, Proved]:
    """The proofs of some findings, each by the next processor that is free. Alone where copies are not possible."""
    from preflight.system.forked import MOST_PIECES, Done, in_copies, most_copies

    def piece(number: int) -> list[tuple[int, Proved]]:
        return [
            (one, _proved(prover, findings[one], progress, f"proving a fix ({_named(findings[one])})"))
            for one in numbers[number::pieces]
        ]

    pieces, copies = min(len(numbers), MOST_PIECES), most_copies()
    done = Done()
    if copies >= 2:
        with progress.shown(f"proving {len(numbers)} more fixes on {copies} processors"):
            done = in_copies(pieces, piece, copies, lambda _: None)
    if not done.results and not done.lost:
        done = Done({number: piece(number) for number in range(pieces)})
    found: dict[int, Proved] = {}
    for result in done.results.values():
        found.update(cast("list[tuple[int, Proved]]", result))
    lost = f"{_NOT_PROVED}: {done.lost}" if done.lost else _NOT_PROVED
    return {number: found.get(number, (None, (lost,), Cause.time_limit)) for number in numbers}


def _proved(prover: Prover, finding: Finding, progress: Progress, place: str) -> Proved:
    """The proof of one finding's proposals, if there is time for it."""
    over = prover.over(finding)
    if over is not None:
        return None, (f"{_NOT_PROVED}: it is {over}",), Cause.budget
    try:
        progress.check()
        with progress.shown(place):
            return (*prover.fixed(finding), None)
    except TimeOver:
        return None, (f"{_NOT_PROVED} {progress.deadline}",), Cause.time_limit


def _with(finding: Finding, fix: Fix | None, notes: tuple[str, ...], unproved: Cause | None) -> Finding:
    return replace(finding, fix=fix, notes=(*finding.notes, *notes), unproved=unproved)


def _named(finding: Finding) -> str:
    return f"{finding.rule} in {finding.origin.path}" if finding.origin is not None else finding.rule


class Prover:
    """Proves proposals against one state of the project. Proposals with the same edits are checked once."""

    def __init__(self, found: CheckResult, again: CheckAgain, clock: ProofTime | None = None) -> None:
        self.found, self.again, self.clock = found, again, clock or ProofTime()
        self._proofs: Counter[str] = Counter()
        """How often something was checked again for a finding of each file."""
        self._checked: dict[frozenset[tuple[str, str]], CheckResult] = {}
        self._compared: list[tuple[CheckResult, Intent, list[Difference]]] = []
        """Cache: many findings need the same change of a shared file, and its effect on each study is computed once."""
        self.launches = Launches(found)
        self._before = {id(finding) for finding in found.findings}

    def over(self, finding: Finding) -> str | None:
        """The budget that is used up, so that the finding's proposals are not tried; None while there is some left."""
        if self.clock.over():
            observed.not_final("the CPU time for proofs was used up")
            return PROOF_SECONDS.over
        return PROOFS.over if self._proofs[_path(finding)] >= PROOFS else None

    def fixed(self, finding: Finding) -> tuple[Fix | None, tuple[str, ...]]:
        """The first proved proposal of a finding as its fix. Without one, a note if only the second YAML parser was
        against a fix."""
        with self.clock.spent():
            checked = len(self._checked)
            proved = self._first(finding)
            self._proofs[_path(finding)] += len(self._checked) - checked
            return proved

    def _first(self, finding: Finding) -> tuple[Fix | None, tuple[str, ...]]:
        notes: dict[str, None] = {}
        for proposal in finding.proposals:
            fix = self.proved(finding, proposal)
            refusal = self._refused(fix, finding.study) if fix is not None else None
            if fix is not None and refusal is None:
                study = self.found.studies[finding.study].study if finding.study is not None else None
                title = f"{fix.title}{_registered(fix, study)}"
                return replace(fix, title=title, costs=costs_of(proposal.changes, study)), ()
            if refusal is not None:
                notes[f"no fix is offered: {refusal}"] = None
        return None, tuple(notes)

    def proved(self, finding: Finding, proposal: Proposal) -> Fix | None:
        """The proposal as a fix: the finding is gone, nothing as bad is new, and no other setting changed."""
        study = None if finding.study is None else self.found.studies[finding.study].study
        edits = plan(proposal, study, self.found.project)
        if study is None or not edits or overridable(study, edits, self.found.project):
            return self._proof(finding, proposal, edits) if study is None else None
        sharing = self.launches.sharing(finding, proposal, edits)
        if not sharing:
            return self._proof(finding, proposal, edits)
        own = self._proof(finding, proposal, on_command_line(proposal.changes, study))
        if own is not None:
            return own
        fix, names = self._proof(finding, proposal, edits), self.launches.changed(finding, proposal, sharing)
        if fix is None or not names:
            return fix
        title = f"{fix.title} (also in {listed(names)})"
        return Fix(title, Safety.unsafe, fix.edits, fix.reason or f"{listed(names)} reads the edited value as well")

    def _proof(self, finding: Finding, proposal: Proposal, edits: tuple[Edit, ...] | None) -> Fix | None:
        texts = edited(self.found.project, edits) if edits else None
        if not edits or not texts or not self._texts_hold(edits):
            return None
        after = self._after(texts)
        if not self._gone(finding, after):
            return None
        found = self._differences(after, Intent(proposal.changes, edits, proposal.safety), finding.study)
        if found is None or not all(difference.harmless for difference in found):
            return None
        if found and proposal.safety is Safety.safe:
            names = ", ".join(sorted({difference.name for difference in found}))
            return Fix(proposal.title, Safety.unsafe, edits, f"{names} follows the edited value")
        return Fix(proposal.title, proposal.safety, edits, proposal.reason)

    def _texts_hold(self, edits: Sequence[Edit]) -> bool:
        return all(only_meant(self.found.project.source(path), own) for path, own in by_path(edits).items())

    def _refused(self, fix: Fix, study: int | None) -> str | None:
        """Why the second YAML parser refuses a fix that passed all other checks; None where it accepts the fix."""
        readings = self.found.studies[study].study.readings if study is not None else ()
        core = {reading.path for reading in readings if reading.dialect in READ_AS_1_2}
        for path, own in by_path(fix.edits).items():
            if language_of(path) != "yaml":
                continue
            try:
                yaml_round_trip.prove(self.found.project.source(path), own, "1.2" if path in core else "1.1")
            except yaml_round_trip.Unproved as error:
                return str(error)
        return None

    def _after(self, texts: Mapping[str, str]) -> CheckResult:
        key = frozenset(texts.items())
        if key not in self._checked:
            self._checked[key] = self.again(self.found.project.with_overlay(texts))
        return self._checked[key]

    def _gone(self, finding: Finding, after: CheckResult) -> bool:
        """Whether the finding is gone, and no new finding is as severe."""
        later = {
            id(other) for other in after.findings
        }  # those of studies that were not read again are the same objects
        more = Counter(_key(other) for other in after.findings if id(other) not in self._before)
        more.subtract(_key(other) for other in self.found.findings if id(other) not in later)
        if more[_key(finding)] >= 0:
            return False
        new = {key for key, count in more.items() if count > 0}
        return not new or not any(
            _key(other) in new for other in after.findings if other.severity.rank >= finding.severity.rank
        )

    def _differences(self, after: CheckResult, intent: Intent, own: int | None) -> list[Difference] | None:
        """Other changes in the studies that read an edited file; None if the studies are no longer the same."""
        if len(after.studies) != len(self.found.studies):
            return None
        changed = [
            (index, old.study, new.study)
            for index, (old, new) in enumerate(zip(self.found.studies, after.studies, strict=True))
            if old is not new and old.study is not new.study
        ]
        known = next((one for read, meant, one in self._compared if read is after and meant == intent), None)
        if known is None:
            known = [one for _, old, new in changed for one in unintended(old, new, intent)]
            self._compared.append((after, intent, known))
        found = list(known)
        for index, old, new in changed:
            if own is not None and index != own:
                found += carried_over(self.found.studies[own].study, old, new, intent)
        return found


def _registered(fix: Fix, study: Study | None) -> str:
    """What is left to do after an edit of a sweep's file: W&B keeps the configuration that was registered."""
    sweeps = {reading.path for reading in study.readings if reading.dialect == "wandb"} if study is not None else set()
    return "; run `wandb sweep` again" if any(edit.path in sweeps for edit in fix.edits) else ""


def _key(finding: Finding) -> _Key:
    """The identity of a finding before and after an edit that moves it."""
    return finding.rule, finding.study, finding.settings, _path(finding)


def _path(finding: Finding) -> str:
    return finding.origin.path if finding.origin is not None else ""
