"""The launches of a checked project, and which of them read the text that a fix edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from preflight.fixes.compare import Intent
from preflight.vocabulary.findings import Finding, Proposal, Safety
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import origins

if TYPE_CHECKING:
    from preflight.vocabulary.study import Study

MAX_NAMED = 3
"""A title names at most this many launches; it counts the others."""


class CheckedStudy(Protocol):
    """A study with its verdict, of which only the study is needed here."""

    @property
    def study(self) -> Study: ...


class CheckResult(Protocol):
    """The result of a check. The order of the studies is fixed, and a finding names its study by index."""

    @property
    def project(self) -> Project: ...
    @property
    def studies(self) -> Sequence[CheckedStudy]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    def started_by(self, path: str) -> tuple[Study, ...]:
        """The studies that a file of the project starts, where that file was not checked itself."""


class OtherLaunch(Struct, frozen=True):
    """A launch that shares an edited file with the launch to be fixed."""

    index: int | None
    """Its study's index; None where it was not checked."""
    path: str
    """The file that starts it."""
    reads_edit: bool
    """One of its settings comes from the edited text."""


def readers(studies: Sequence[CheckedStudy]) -> Mapping[str, Sequence[int]]:
    """File -> the studies that read it, by index and in order."""
    found: dict[str, list[int]] = {}
    for index, result in enumerate(studies):
        for path in dict.fromkeys(result.study.paths):
            found.setdefault(path, []).append(index)
    return found


class Launches:
    """The launches of a project. Those that were not checked are searched for when a fix needs them."""

    def __init__(self, found: CheckResult) -> None:
        self.found = found
        self._elsewhere: dict[str, tuple[Study, ...]] = {}
        self._readers = readers(found.studies)
        self._started = {result.study.paths[0] for result in found.studies}
        self._safe: dict[str, list[tuple[int | None, Proposal]]] = {}
        """Rule -> the safe proposals of its findings, with their studies."""
        for finding in found.findings:
            safe = [(finding.study, one) for one in finding.proposals if one.safety is Safety.safe]
            self._safe.setdefault(finding.rule, []).extend(safe)

    def sharing(self, finding: Finding, proposal: Proposal, edits: Sequence[Edit]) -> list[OtherLaunch]:
        """The other launches that read an edited file."""
        intent = Intent(proposal.changes, tuple(edits), proposal.safety)
        named = [name for name in intent.named if not name.startswith("request.")]
        if not named or finding.study is None:
            return []
        paths = {edit.path for edit in edits}
        found: list[OtherLaunch] = []
        for index in sorted({index for path in paths for index in self._readers.get(path, ())}):
            if index != finding.study:
                study = self.found.studies[index].study
                found.append(OtherLaunch(index, study.paths[0], _reads_edit(study, named, intent)))
        for study in self._starting(paths - self._started):
            if study.paths[0] not in self._started:
                found.append(OtherLaunch(None, study.paths[0], _reads_edit(study, named, intent)))
        return list(dict.fromkeys(found))

    def _starting(self, paths: set[str]) -> Iterator[Study]:
        for path in sorted(paths):
            if path not in self._elsewhere:
                self._elsewhere[path] = self.found.started_by(path)
            yield from self._elsewhere[path]

    def changed(self, finding: Finding, proposal: Proposal, sharing: Sequence[OtherLaunch]) -> list[str]:
        """The files that start those of the other launches whose run may change. A launch is left out if one of its own
        findings proposes the same change as a safe fix."""
        asking = {study for study, one in self._safe.get(finding.rule, ()) if one.changes == proposal.changes}
        return list(
            dict.fromkeys(
                one.path for one in sharing if one.reads_edit and (one.index is None or one.index not in asking)
            )
        )


def _reads_edit(study: Study, named: Sequence[str], intent: Intent) -> bool:
    """Whether one of the named fields comes from the edited text."""
    return any(
        bound is not None and intent.touches([bound.origin, *origins(bound.expr)])
        for box in study.boxes
        for bound in (box.fields.get(name) for name in named)
    )


def listed(names: Sequence[str]) -> str:
    """Names for a title: "a.sh, b.sh, c.sh and 3 more"."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
