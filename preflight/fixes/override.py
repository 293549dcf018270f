"""Settings given on a launch's own command line in place of an edit of a file that other launches read.

A flag of the program's own parser, or a Hydra override of a key that the composed configuration has.
"""

from __future__ import annotations

from collections.abc import Iterable

from preflight.documents.render import render
from preflight.fixes.insert import flag, line_end
from preflight.vocabulary.findings import Change
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Span, Unknown, Value


def override(changes: Iterable[Change], study: Study) -> tuple[Edit, ...] | None:
    """One edit of the line that launches the study; None where a change has no word of its own there."""
    place, words = line_end(study), list[str]()
    for change in changes:
        if change.keep is not None or change.field.startswith("request.") or place is None:
            return None
        word = _word(change.field, change.value, study)
        if word is None:
            return None
        words.append(word)
    if place is None or not words:
        return None
    return (Edit(place.path, Span(place.span.end, place.span.end), "".join(f" {word}" for word in words)),)


def _word(field: str, value: Value, study: Study) -> str | None:
    if isinstance(value, (Unknown, dict, tuple)):
        return None
    return flag(field, value, study) or _hydra(field, value, study)


def _hydra(field: str, value: Value, study: Study) -> str | None:
    """`key=value`, where one key of the composed configuration is all of the field in every branch."""
    reading = next((one for one in study.readings if one.dialect == "hydra"), None)
    if reading is None or study.program is None:
        return None
    keys = set()
    for box in study.boxes:
        bound = box.fields.get(field)
        places = bound.origin if bound is not None else None
        keys |= {setting.key for setting in reading.settings if places is not None and setting.expr.origin == places}
    return f"{keys.pop()}={render('', value, 'bash')}" if len(keys) == 1 else None
