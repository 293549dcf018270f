"""From a rule's proposal to edits of files: where the settings are written, or on the launch's own command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from preflight.documents.render import render
from preflight.fixes.edits import edits_in
from preflight.fixes.insert import flag, line_end
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.text import Edit, EditConflict, splice
from preflight.vocabulary.values import Span, Unknown, Value

if TYPE_CHECKING:
    from preflight.vocabulary.findings import Change, Proposal
    from preflight.vocabulary.study import Study


def plan(proposal: Proposal, study: Study | None, project: Project) -> tuple[Edit, ...] | None:
    """The edits that carry out a proposal. None if one of its changes cannot be traced back to one text, if the edits
    contradict each other, or if nothing would change.

    `study` is None for a finding that belongs to no study: its proposals consist of edits alone.
    """
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
    """The new text of each file that the edits change; None if edits overlap or a file cannot be read."""
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


# --- on the command line --------------------------------------------------------------------------------------------


def on_command_line(changes: Iterable[Change], study: Study) -> tuple[Edit, ...] | None:
    """One edit that gives settings on the line that launches the study, so that shared files stay as they are.

    None if the program has neither a flag nor a Hydra override for one of the changes.
    """
    place, words = line_end(study), overrides(changes, study)
    if place is None or not words:
        return None
    return (Edit(place.path, Span(place.span.end, place.span.end), "".join(f" {word}" for word in words)),)


def overrides(changes: Iterable[Change], study: Study) -> list[str] | None:
    """Text for the end of the command line, for each change; None if the program takes one of them nowhere."""
    words = list[str]()
    for change in changes:
        if change.keep is not None or change.field.startswith("request."):
            return None
        word = _word(change.field, change.value, study)
        if word is None:
            return None
        words.append(word)
    return words


def _word(field: str, value: Value, study: Study) -> str | None:
    if isinstance(value, (Unknown, dict, tuple)):
        return None
    return flag(field, value, study) or _hydra_override(field, value, study)


def _hydra_override(field: str, value: Value, study: Study) -> str | None:
    """`key=value`, if one key of the composed configuration alone decides the field in every branch."""
    reading = next((one for one in study.readings if one.dialect == "hydra"), None)
    if reading is None or study.program is None:
        return None
    keys = set()
    for box in study.boxes:
        bound = box.fields.get(field)
        places = bound.origin if bound is not None else None
        keys |= {setting.key for setting in reading.settings if places is not None and setting.expr.origin == places}
    return f"{keys.pop()}={render('', value, 'bash')}" if len(keys) == 1 else None
