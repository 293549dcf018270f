"""Proposals to edits: only where each change has one provable way back to what is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from preflight.fixes.edits import edits_in
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.text import Edit, EditConflict, splice

if TYPE_CHECKING:
    from preflight.vocabulary.findings import Proposal
    from preflight.vocabulary.study import Study


def plan(proposal: Proposal, study: Study | None, project: Project) -> tuple[Edit, ...] | None:
    """The edits that carry a proposal out; None where one of its changes has no way back, where they contradict each
    other or where nothing would change. `study` is None for a finding that belongs to none: it can only bring edits of
    its own."""
    edits = proposal.edits
    if proposal.changes:
        if study is None:
            return None

        for change in proposal.changes:
            found = edits_in(change, study, project)
            if found is None:
                return None
            edits = tuple(dict.fromkeys((*edits, *found)))
    return edits if edited(project, edits) else None


def edited(project: Project, edits: Iterable[Edit]) -> dict[str, str] | None:
    """New texts of the files that edits change; None where edits overlap or a file cannot be read."""
    texts = {}
    for path, own in by_path(edits).items():
        try:
            old = project.source(path).text
            new = splice(old, own)
        except (EditConflict, UnreadableFile):
            return None
        if new != old:
            texts[path] = new
    return texts


def by_path(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """The edits of each file."""
    found: dict[str, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.path, []).append(edit)
    return found
