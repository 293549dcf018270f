"""When something struck, and evidence by its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from preflight.postmortem.cause import When
from preflight.postmortem.collect import Found
from preflight.postmortem.evidence import Evidence, Frame, Place
from preflight.postmortem.trace import moment

E = TypeVar("E")


def of(kind: type[E], found: Found) -> list[E]:
    """The evidence of one kind, in the order of the logs."""
    return [one for one in found.evidence if isinstance(one, kind)]


def places_of(*groups: Sequence[Evidence]) -> list[Place]:
    """Where pieces of evidence are, in the order given."""
    return [one.place for group in groups for one in group]


def at(place: Place) -> str:
    """A place as people name it."""
    return f"{place.path}:{place.line}"


def when(places: Sequence[Place], found: Found, frames: tuple[Frame, ...]) -> When:
    """The moment: by the traceback, else by what the job's log showed last (a .err beside a .out has no progress)."""
    told = moment(frames)
    seen = [one for place in places for one in found.before.get((place.path, place.line), ())]
    if not seen:
        ends = [progress for progress in found.last.values() if progress]
        seen = list(ends[-1]) if ends else []
    phase = told.phase or (seen[-1].phase if seen else "")
    return When(phase, told.frame, told.beneath, seen[-1].place if seen else None)
