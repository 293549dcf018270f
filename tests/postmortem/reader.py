"""What tests of parsers share: a text in, evidence or a conclusion out."""

from __future__ import annotations

from typing import TypeVar

from preflight.postmortem.collect import CollectedEvidence, collect_text
from preflight.postmortem.conclude import Conclusion, conclude
from preflight.postmortem.diagnosis import Diagnosis

E = TypeVar("E")


def read(text: str) -> CollectedEvidence:
    """The evidence of a log."""
    return collect_text("job.log", text)


def only(text: str, kind: type[E]) -> E:
    """The one piece of evidence of a kind."""
    [found] = [one for one in read(text).evidence if isinstance(one, kind)]
    return found


def all_of(text: str, kind: type[E]) -> list[E]:
    return [one for one in read(text).evidence if isinstance(one, kind)]


def concluded(text: str) -> Conclusion:
    return conclude(read(text))


def cause(text: str) -> Diagnosis:
    """The first cause."""
    return concluded(text).causes[0]
