"""The corners of a study's search space as commands: what decides how much its largest combinations need.

Numbers that decide memory, and those of which nothing is known, are at their largest; every value of a choice is taken.
Then comes the combination with the smallest of all. Arguments that no tensor depends on have their first value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.dry_runs import is_without_effect
from preflight.vocabulary.reading import Link, Word
from preflight.vocabulary.study import Box, Study, size_of
from preflight.vocabulary.values import Axis, Choices, Const, Expr, Range, Unbounded, Unknown, Value, evaluate, names

ASKING = frozenset({"optuna", "wandb"})
"""Dialects of searches whose values a program may ask for itself, and a dry run can give."""


class Corner(Struct, frozen=True):
    """A command. `searched`: values that its program asks of its search itself, whatever the command says;
    `largest`: whether other numbers that it asks for are at their largest."""

    words: tuple[str, ...]
    searched: tuple[tuple[str, Value], ...] = ()
    largest: bool = True


class Corners(Struct, frozen=True):
    """The corners, and what was left out, for the user."""

    corners: tuple[Corner, ...]
    note: str = ""


def corners_of(studies: Sequence[Study], root: Path, most: int) -> Corners:
    """The corners of studies as commands in the current directory, at most so many."""
    found: dict[Corner, None] = {}
    why: dict[str, None] = {}
    sizes: list[int | None] = []
    for study in studies:
        for box in study.boxes:
            sizes.append(_combinations(box))
            for values, largest in _corners(box):
                corner = _command(study, box, values, root)
                if isinstance(corner, str):
                    why[corner] = None
                else:
                    found[replace(corner, largest=largest or not corner.searched)] = None
    kept = tuple(islice(found, most))
    left = len(found) - len(kept)
    known = [one for one in sizes if one is not None]
    total = f"{sum(known):,}" if len(known) == len(sizes) else "very many"
    notes = [f"{len(kept)} of {total} combinations are run: the largest values, up to 64 choices, and the smallest"]
    notes += [f"{left:,} more corners are left out"] if left else []
    some = len(known) < len(sizes) or sum(known) > len(kept)
    return Corners(kept, "; ".join([*(notes if kept and some else []), *why]))


def _combinations(box: Box) -> int | None:
    """Combinations of what may decide memory; None: a number among it has no end or no steps."""
    sizes = [size_of(axis) for axis in box.axes if not is_without_effect(axis.name)]
    return None if None in sizes else prod(one for one in sizes if one is not None)


def _corners(box: Box) -> Iterator[tuple[Mapping[str, Value], bool]]:
    """Values of the axes of each corner, and whether they are the largest: the smallest come last."""
    ends = [_ends(axis) for axis in box.axes]
    if any(not one for one in ends):
        return
    high = [one if _is_choice(axis) else one[-1:] for axis, one in zip(box.axes, ends, strict=True)]
    for values in islice(product(*high), 64):
        yield dict(zip((axis.name for axis in box.axes), values, strict=True)), True
    if box.axes:
        yield {axis.name: one[0] for axis, one in zip(box.axes, ends, strict=True)}, False


def _is_choice(axis: Axis) -> bool:
    """Whether the values of an axis have no order."""
    domain = axis.domain
    numbers = isinstance(domain, Choices) and all(isinstance(one, (int, float)) for one in domain.values)
    return isinstance(domain, Choices) and not numbers


def _ends(axis: Axis) -> tuple[Value, ...]:
    """The values of an axis that are taken, the smallest first; none of a distribution without ends."""
    domain = axis.domain
    if isinstance(domain, Unbounded):
        return ()
    if isinstance(domain, Range):
        low, high = domain.low, domain.high
        found: tuple[Value, ...] = (int(low), int(high)) if domain.integer else (low, high)
    elif _is_choice(axis):
        found = domain.values
    else:
        found = tuple(sorted(domain.values, key=lambda one: one if isinstance(one, (int, float)) else 0))
    return found[:1] if is_without_effect(axis.name) else found


def _command(study: Study, box: Box, values: Mapping[str, Value], root: Path) -> Corner | str:
    """One corner, or why there is none."""
    link = next((one for one in reversed(study.links) if one.kind in ("program", "module")), None)
    target = link.target if link is not None else study.program or study.paths[0]
    told = {name for word in (link.words if link is not None else ()) if word.value for name in names(word.value)}
    silent = [axis.name for axis in box.axes if axis.name not in told]
    if not target.endswith(".py") and (link is None or link.kind != "module"):
        return f"{study.paths[0]}: its program is not known"
    here = os.path.relpath(root / target) if target.endswith(".py") else target
    words: list[str] = []
    environment = {name: Const(value) for name, value in {**box.fixed, **values}.items()}
    for word in link.words if link is not None else ():
        text = _text(word, environment)
        if text is None:
            return f"{study.paths[0]}: {word.prefix or 'a word of its command'} is not known"
        words.append(text)
    searched: tuple[tuple[str, Value], ...] = ()
    if silent and "hydra" in study.dialects:
        words += [f"{name}={_shown(values[name])}" for name in silent]
    elif silent and ASKING.intersection(study.dialects):
        own = {name: value for name, value in box.fixed.items() if name not in told}
        searched = tuple({**own, **{name: values[name] for name in silent}}.items())
    elif [name for name in silent if not is_without_effect(name)]:
        return f"{study.paths[0]}: the program takes {silent[0]} from its search itself: no command states it"
    return Corner((*_start(study, link), here, *words), searched)


def _start(study: Study, link: Link | None) -> tuple[str, ...]:
    ranks = study.launch.ranks_per_node
    several = evaluate(ranks) if ranks is not None else None
    module = ("-m",) if link is not None and link.kind == "module" and not link.target.endswith(".py") else ()
    if study.launch.launcher == "torchrun" and isinstance(several, int) and several > 1:
        return ("torchrun", "--nproc_per_node", str(several), *module)
    return ("python", *module)


def _text(word: Word, environment: Mapping[str, Expr]) -> str | None:
    if word.value is None:
        return word.hydra_prefix + word.prefix
    value = evaluate(word.value, environment)
    return None if isinstance(value, Unknown) else f"{word.hydra_prefix}{word.prefix}{_shown(value)}"


def _shown(value: Value) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
