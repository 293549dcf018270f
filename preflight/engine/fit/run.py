"""`preflight fit` for a job file: the answers of its studies, and their changes as a diff or in the files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import Analysis, CheckSetup
from preflight.engine.fit.solve import decisive, of_study
from preflight.engine.fit.write import fix_of, written
from preflight.engine.rounds import diff_of
from preflight.fixes.what_if import axes_of
from preflight.vocabulary.fits import FitOfStudy
from preflight.vocabulary.words import plural


class Wish(Struct, frozen=True):
    """What is solved for, and what is done with the answer. `unsafe`: also with changes that make another run."""

    fields: tuple[str, ...] = ()
    unsafe: bool = False


def answered(found: Analysis, asked: CheckSetup, wish: Wish, cwd: Path) -> list[FitOfStudy]:
    """The answers of every study, each with its proved change."""
    from preflight.fixes.plan import edited

    every = []
    for index, result in enumerate(found.studies):
        parts = of_study(result, found, asked, wish.fields)
        field = parts[0].answers[0].field
        answer = decisive(parts, field)
        fix = fix_of(index, answer, found, asked) if answer is not None else None
        texts = edited(found.project, fix.edits) if fix is not None else None
        diff = diff_of(found.project, texts, cwd) if texts else ""
        notes = (*result.notes, *_swept(index, field, found))
        every.append(FitOfStudy(result.study.paths, parts, field, fix, diff, notes))
    return every


def _swept(index: int, field: str, found: Analysis) -> Iterator[str]:
    """That a search states the values of the field, so that no single value can be written."""
    case = next((one for one in found.cases if one.index == index), None)
    axes = axes_of(case, field) if case is not None else ()
    if axes:
        names = ", ".join(axis.name for axis in axes)
        yield f"{field} is part of the search ({names}); preflight check --diff shows how to narrow it"


def difference(found: Analysis, asked: CheckSetup, field: str, unsafe: bool, cwd: Path) -> str:
    """The diff of what would be written into the files of all studies."""
    return diff_of(found.project, written(found, asked, field, unsafe).texts, cwd)


def store(found: Analysis, asked: CheckSetup, answers: Sequence[FitOfStudy], unsafe: bool) -> list[FitOfStudy]:
    """Writes the answers into the files. Each file is the old one or the new one at every moment."""
    from preflight.fixes.write import write_text

    texts = written(found, asked, answers[0].field, unsafe).texts
    for path, text in texts.items():
        write_text(found.project, path, text)
    note = f"{plural(len(texts), 'file')} changed: {', '.join(sorted(texts))}" if texts else "no file was changed"
    return [replace(one, notes=(*one.notes, note)) if one is answers[-1] else one for one in answers]


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Keeps other runs from writing fixes in the same folder meanwhile."""
    from preflight.fixes.write import alone as locked

    with locked(root):
        yield
