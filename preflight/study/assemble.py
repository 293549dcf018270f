"""Makes a Study from a chain of readings: a Box for each branch, and their common parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preflight.study.follow import Chain, with_expressions
from preflight.study.passes import Draft, box_of
from preflight.study.scope import unmark
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Branch, Problem, Reading, Request
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Value


def assemble(chain: Chain, project: Project, overrides: Mapping[str, Value]) -> Study:
    """The Study of one launch."""
    readings = [reading for step in chain for reading in step.readings]
    request, launch = _request(readings), chain[-1].launch
    if request is not None and request.components:
        from preflight.slurm.allocation import part_of

        request = part_of(request, launch)
    problems: list[Problem] = [problem for reading in readings for problem in reading.problems]
    boxes = []
    for branch in _branches(readings):
        draft = Draft(chain, branch, request, project.settings, overrides)
        boxes.append(box_of(draft))
        problems += [problem for problem in draft.problems if problem not in problems]
    leaf = chain[-1].reading
    return Study(
        paths=tuple(dict.fromkeys(path for reading in readings for path in (reading.path, *reading.reads))),
        dialects=tuple(dict.fromkeys(reading.dialect for reading in readings)),
        boxes=tuple(boxes),
        request=request,
        facts={fact.name: fact for reading in readings for fact in reading.facts},
        problems=tuple(dict.fromkeys(problems)) if _hashable(problems) else tuple(problems),
        launch=with_expressions(launch, unmark),
        group=next((step.link.group for step in chain[1:2] if step.link is not None), 0),
        program=leaf.path if leaf.path.endswith((".py", ".ipynb")) else None,
        readings=tuple(readings),
        links=tuple(step.link for step in chain if step.link is not None),
        unread=next((one.unread for one in chain[-1].readings if one.unread is not None), None),
    )


def _hashable(problems: list[Problem]) -> bool:
    try:
        hash(tuple(problems))
    except TypeError:
        return False
    return True


def _request(readings: Sequence[Reading]) -> Request | None:
    """The request of the job that the program runs in: the innermost one, if a job submits another."""
    return next((reading.request for reading in reversed(readings) if reading.request), None)


def _branches(readings: Iterable[Reading]) -> list[Branch]:
    """The branches of a chain, one for each box: those of one file, or their product if several files have some (rare).

    Branches that only set values make no boxes: the reading's own settings say the same as conditions on the axis that
    chooses among them (a Hydra group), and one box can be narrowed as a whole.
    """
    boxes = [Branch()]
    for reading in readings:
        if any(branch.axes or branch.bindings for branch in reading.branches):
            boxes = [_joined(box, branch) for box in boxes for branch in reading.branches]
    return boxes


def _joined(left: Branch, right: Branch) -> Branch:
    return Branch(
        {**left.fixed, **right.fixed},
        left.axes + right.axes,
        left.settings + right.settings,
        left.bindings + right.bindings,
    )
