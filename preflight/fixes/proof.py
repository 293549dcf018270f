"""A fix is proved before it is offered: applied to a copy in memory, read and judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from preflight.documents.render import language_of
from preflight.fixes.compare import Difference, Intent, carried_over, differences
from preflight.fixes.launches import Launches, listed
from preflight.fixes.overridden import overridable
from preflight.fixes.override import override
from preflight.fixes.plan import by_path, edited, plan
from preflight.fixes.routes import only_meant
from preflight.vocabulary.findings import Finding, Fix, Proposal, Safety
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import Edit

if TYPE_CHECKING:
    from preflight.vocabulary.study import Study


class Judged(Protocol):
    """A study that was judged."""

    @property
    def study(self) -> Study: ...


class Read(Protocol):
    """What a check found: studies in a fixed order, and findings that name theirs by index."""

    @property
    def project(self) -> Project: ...
    @property
    def studies(self) -> Sequence[Judged]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    def started_by(self, path: str) -> tuple[Study, ...]:
        """The studies of a file of the project that was not checked."""


Again = Callable[[Project], Read]

READ_AS_1_2 = frozenset({"compose", "kubernetes"})
"""Dialects whose files are read by the core schema of YAML 1.2, as their readers do; PyYAML reads all others."""

_Key = tuple[str, "int | None", tuple[str, ...], str]


class Prover:
    """Proves proposals against one state of the project; what two of them have in common is checked once."""

    def __init__(self, found: Read, again: Again) -> None:
        self.found, self.again = found, again
        self._checked: dict[frozenset[tuple[str, str]], Read] = {}
        self._compared: list[tuple[Read, Intent, list[Difference]]] = []
        """Many findings ask for one change of a shared file: what it does to each study is looked at once."""
        self.others = Launches(found)
        self._before = Counter(_key(finding) for finding in found.findings)

    def fixed(self, finding: Finding) -> Finding:
        """The finding with the first proposal that is proved as its fix; as it is where none is, with the reason where
        only the second parser of its file stood against one."""
        notes: dict[str, None] = {}
        for proposal in finding.proposals:
            fix = self.proved(finding, proposal)
            refusal = self._refused(fix, finding.study) if fix is not None else None
            if fix is not None and refusal is None:
                return replace(finding, fix=fix)
            if refusal is not None:
                notes[f"no fix is offered: {refusal}"] = None
        return replace(finding, notes=(*finding.notes, *notes)) if notes else finding

    def proved(self, finding: Finding, proposal: Proposal) -> Fix | None:
        """The proposal as a fix: the finding is gone, nothing as bad is new, and no other setting changed."""
        study = None if finding.study is None else self.found.studies[finding.study].study
        edits = plan(proposal, study, self.found.project)
        if study is None or not edits or overridable(study, edits, self.found.project):
            return self._proof(finding, proposal, edits) if study is None else None
        sharing = self.others.sharing(finding, proposal, edits)
        if not sharing:
            return self._proof(finding, proposal, edits)
        own = self._proof(finding, proposal, override(proposal.changes, study))
        if own is not None:
            return own
        fix, names = self._proof(finding, proposal, edits), self.others.changed(finding, proposal, sharing)
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
        """Why the second parser of YAML does not prove a fix that all else has proved; None where it does."""
        readings = self.found.studies[study].study.readings if study is not None else ()
        core = {reading.path for reading in readings if reading.dialect in READ_AS_1_2}
        for path, own in by_path(fix.edits).items():
            if language_of(path) != "yaml":
                continue
            from preflight.fixes.yaml_round_trip import Unproved, prove

            try:
                prove(self.found.project.source(path), own, "1.2" if path in core else "1.1")
            except Unproved as error:
                return str(error)
        return None

    def _after(self, texts: Mapping[str, str]) -> Read:
        key = frozenset(texts.items())
        if key not in self._checked:
            self._checked[key] = self.again(self.found.project.with_overlay(texts))
        return self._checked[key]

    def _gone(self, finding: Finding, after: Read) -> bool:
        """Whether there is one less of the finding, and no other that is as severe and was not there."""
        now = Counter(_key(other) for other in after.findings)
        if now[_key(finding)] >= self._before[_key(finding)]:
            return False
        severe = {_key(other) for other in after.findings if other.severity.rank >= finding.severity.rank}
        return all(now[key] <= self._before[key] for key in severe)

    def _differences(self, after: Read, intent: Intent, own: int | None) -> list[Difference] | None:
        """What else changed, in every study that reads an edited file; None where the studies are not the same ones."""
        if len(after.studies) != len(self.found.studies):
            return None
        changed = [
            (index, old.study, new.study)
            for index, (old, new) in enumerate(zip(self.found.studies, after.studies, strict=True))
            if old.study is not new.study
        ]
        known = next((one for read, meant, one in self._compared if read is after and meant == intent), None)
        if known is None:
            known = [one for _, old, new in changed for one in differences(old, new, intent)]
            self._compared.append((after, intent, known))
        found = list(known)
        for index, old, new in changed:
            if own is not None and index != own:
                found += carried_over(self.found.studies[own].study, old, new, intent)
        return found


def _key(finding: Finding) -> _Key:
    """What makes a finding the same one after an edit moved it."""
    return finding.rule, finding.study, finding.settings, finding.origin.path if finding.origin is not None else ""
