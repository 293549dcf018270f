"""Merges options of a Hydra tree whose jobs need the same memory into one study.

Every option of a group is read as the launch that would choose it. A logger, a debug option or a seed gives the same
job as the defaults; one study represents all of them, so that one job is judged once and reported once. An option that
states a value of the job itself is a study, even if the value is that of the defaults: its line has to be named, and a
fix of the other line does not change it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec.structs import replace

from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Choices, Domain, Origin, shape

CONFIGURATION = "hydra"
"""The dialect whose files start nothing by themselves: they are composed by a program."""


def merged(studies: Sequence[Study]) -> tuple[list[int], list[Study]]:
    """The studies that are kept, by index and in order. Each has the files and the problems of those it represents."""
    same: dict[Hashable, list[int]] = {}
    for index, study in enumerate(studies):
        alone = study.program is None or study.request is not None or study.unread is not None
        same.setdefault(index if alone else _job(study), []).append(index)
    kept: dict[int, Study] = {}
    for group in same.values():
        options = [index for index in group if _is_option(studies[index])]
        launches = [index for index in group if index not in options] or [options.pop(0)]
        kept |= {index: studies[index] for index in launches}
        kept[launches[0]] = _with(studies[launches[0]], [studies[index] for index in options])
    return sorted(kept), [kept[index] for index in sorted(kept)]


def _is_option(study: Study) -> bool:
    """Whether a configuration starts the study, so that no file states the launch."""
    return bool(study.dialects) and study.dialects[0] == CONFIGURATION


def _with(study: Study, others: Sequence[Study]) -> Study:
    if not others:
        return study
    paths = dict.fromkeys((*study.paths, *(path for other in others for path in other.paths)))
    problems = [*study.problems]
    for other in others:
        problems += [problem for problem in other.problems if problem not in problems]
    return replace(study, paths=tuple(paths), problems=tuple(problems), same=tuple(others))


def _job(study: Study) -> Hashable:
    """What a study's verdict depends on, and the places at which it would be reported and changed."""
    facts = tuple(sorted((name, repr(fact.value), repr(_place(fact.origin))) for name, fact in study.facts.items()))
    return study.program, tuple(_box(box) for box in study.boxes), facts


def _box(box: Box) -> Hashable:
    fields = tuple(
        (name, shape(bound.expr), _place(bound.origin), bound.default, bound.source, bound.setting)
        for name, bound in box.fields.items()
    )
    axes = tuple((axis.name, _domain(axis.domain), axis.fields) for axis in box.memory_axes)
    return frozenset(fields), axes, tuple(sorted((name, repr(value)) for name, value in box.fixed.items()))


def _place(origin: Origin | None) -> Hashable:
    """Where a value is written; not the ways that lead there, which differ from option to option."""
    return (origin.path, origin.span) if origin is not None else None


def _domain(domain: Domain) -> Hashable:
    return ("choices", repr(domain.values)) if isinstance(domain, Choices) else repr(domain)
