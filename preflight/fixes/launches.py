"""Other launches that read what a fix edits: those that were checked, and those that other scripts start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preflight.fixes.compare import Intent
from preflight.vocabulary.findings import Finding, Proposal, Safety
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import origins

if TYPE_CHECKING:
    from preflight.fixes.proof import Read
    from preflight.vocabulary.study import Study

NAMED = 3
"""Launches that a title names before it counts them."""


@dataclass(frozen=True)
class Other:
    """A launch beside the one to be fixed. `index`: None where it was not checked. `path`: what starts it. `takes`: it
    takes a value from the edited text."""

    index: int | None
    path: str
    takes: bool


class Launches:
    """The launches of one state of the project; those that were not checked are looked for when a fix needs them."""

    def __init__(self, found: Read) -> None:
        self.found = found
        self._elsewhere: dict[str, tuple[Study, ...]] = {}

    def sharing(self, finding: Finding, proposal: Proposal, edits: Sequence[Edit]) -> list[Other]:
        """The launches beside the finding's own that read an edited file."""
        intent = Intent(proposal.changes, tuple(edits), proposal.safety)
        named = [name for name in intent.named if not name.startswith("request.")]
        if not named or finding.study is None:
            return []
        paths = {edit.path for edit in edits}
        found: list[Other] = []
        for index, result in enumerate(self.found.studies):
            if index != finding.study and paths & set(result.study.paths):
                found.append(Other(index, result.study.paths[0], _takes(result.study, named, intent)))
        started = {result.study.paths[0] for result in self.found.studies}
        for study in self._starting(paths - started):
            if study.paths[0] not in started:
                found.append(Other(None, study.paths[0], _takes(study, named, intent)))
        return list(dict.fromkeys(found))

    def _starting(self, paths: set[str]) -> Iterator[Study]:
        for path in sorted(paths):
            if path not in self._elsewhere:
                self._elsewhere[path] = self.found.started_by(path)
            yield from self._elsewhere[path]

    def changed(self, finding: Finding, proposal: Proposal, sharing: Sequence[Other]) -> list[str]:
        """Those of them whose run the edit is not known to leave the same: no finding of their own asks for the same
        change as a safe one."""
        asking = {
            other.study
            for other in self.found.findings
            for one in other.proposals
            if other.rule == finding.rule and one.safety is Safety.safe and one.changes == proposal.changes
        }
        return list(
            dict.fromkeys(one.path for one in sharing if one.takes and (one.index is None or one.index not in asking))
        )


def _takes(study: Study, named: Sequence[str], intent: Intent) -> bool:
    return any(
        bound is not None and intent.touches([bound.origin, *origins(bound.expr)])
        for box in study.boxes
        for bound in (box.fields.get(name) for name in named)
    )


def listed(names: Sequence[str]) -> str:
    """ "a.sh, b.sh and 3 more"."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
