"""From a chain of readings to a Study: one Box per branch, and what the whole launch has in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from preflight.study.follow import Chain
from preflight.study.passes import Draft, box_of
from preflight.study.scope import unmark
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Branch, Fact, Problem, Reading, Request
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Expr, Value


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
    shown = replace(
        launch,
        nodes=_shown(launch.nodes),
        ranks_per_node=_shown(launch.ranks_per_node),
        total_ranks=_shown(launch.total_ranks),
        trials_per_gpu=_shown(launch.trials_per_gpu),
        environment={name: unmark(expr) for name, expr in launch.environment.items()},
    )
    return Study(
        paths=tuple(dict.fromkeys(path for reading in readings for path in (reading.path, *reading.reads))),
        dialects=tuple(dict.fromkeys(reading.dialect for reading in readings)),
        boxes=tuple(boxes),
        request=request,
        facts=_facts(readings, chain),
        problems=tuple(dict.fromkeys(problems)) if _hashable(problems) else tuple(problems),
        launch=shown,
        group=next((step.link.group for step in chain[1:2] if step.link is not None), 0),
        program=leaf.path if leaf.path.endswith(".py") else None,
        readings=tuple(readings),
        links=tuple(step.link for step in chain if step.link is not None),
    )


def _hashable(problems: list[Problem]) -> bool:
    try:
        hash(tuple(problems))
    except TypeError:
        return False
    return True


def _shown(expr: Expr | None) -> Expr | None:
    return None if expr is None else unmark(expr)


def _request(readings: Iterable[Reading]) -> Request | None:
    """The innermost request: a job that submits another is not what the program runs in."""
    found = None
    for reading in readings:
        found = reading.request or found
    return found


def _facts(readings: Iterable[Reading], chain: Chain) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for reading in readings:
        for fact in reading.facts:
            facts[fact.name] = fact
    return facts


def _branches(readings: Iterable[Reading]) -> list[Branch]:
    """The boxes of a chain: branches of one file, or their product where several files have some (rare).

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
        {**left.fixed, **right.fixed}, left.axes + right.axes, left.settings + right.settings,
        left.bindings + right.bindings,
    )  # fmt: skip
