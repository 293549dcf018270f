"""The circumstances of a failure: where the logs report it, the moment in the run, the trial of a search."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.postmortem.collect import Found
from preflight.postmortem.evidence import Evidence, Frame, Place, Trial
from preflight.postmortem.moment import Moment, moment_of

MOST_PLACES = 4
"""Lines of the logs that are shown for a diagnosis."""


def places_of(*groups: Sequence[Evidence]) -> list[Place]:
    """Where pieces of evidence are, in the order given."""
    return [one.place for group in groups for one in group]


def when(places: Sequence[Place], found: Found, frames: tuple[Frame, ...]) -> Moment:
    """The moment by the traceback, else by the last progress (a .err file has none: then that of the other logs)."""
    told = moment_of(frames)
    seen = [one for place in places for one in found.before.get((place.path, place.line), ())]
    if not seen:
        ends = [progress for progress in found.last.values() if progress]
        seen = list(ends[-1]) if ends else []
    phase = told.phase or (seen[-1].phase if seen else "")
    return Moment(phase, told.frame, told.beneath, seen[-1].place if seen else None)


def trial_of(places: Sequence[Place], found: Found) -> Trial | None:
    """The trial that a failure belongs to: named in the same line, else started last before it."""
    if not places:
        return None
    lines = {(place.path, place.line) for place in places}
    trials = found.of(Trial)
    for one in trials:
        if (one.place.path, one.place.line) in lines:
            return one
    path, line = places[0].path, places[0].line
    before = [one for one in trials if one.place.path == path and one.place.line <= line and not one.error]
    if before:
        return before[-1]
    near = [one for one in trials if "emory" in one.error and one.place.path == path]
    return min(near, key=lambda one: abs(one.place.line - line), default=None)
