"""Fixes applied in memory, one round after another, until none is left; then shown as a diff or written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import CheckOptions, CheckSetup, check, setup
from preflight.engine.files import Batch
from preflight.system.files import real
from preflight.vocabulary.findings import Finding, Fix, Safety
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import Edit, EditConflict, splice

MAX_ROUNDS = 50
"""Every round writes at least one fix and every fix removes its finding, so this many rounds means that two fixes undo
each other."""


class Fixed(Struct, frozen=True):
    """A report before and after, the texts that changed, and how many fixes that took."""

    before: Report
    after: Report
    texts: dict[str, str]
    count: int


def fixed(project: Project, asked: CheckSetup, unsafe: bool, view: Callable[[Report], Report]) -> Fixed:
    """Applies the allowed fixes, in memory. `view` leaves out findings that the user ignores.

    Fixes of one round touch no study in common, so each stands as it was proved; the rest is proved anew.
    """
    before = view(check(project, asked))
    after, texts, count = before, dict[str, str](), 0
    seen = [dict[str, str]()]
    for _ in range(MAX_ROUNDS):
        changed, applied = _round(after, unsafe)
        if not applied:
            break
        following = {**texts, **changed}
        if following in seen:
            break
        texts, count = following, count + applied
        seen.append(texts)
        with asked.proofs.spent():
            after = view(check(project.with_overlay(texts), asked))
    return Fixed(before, after, texts, count)


def _round(report: Report, unsafe: bool) -> tuple[dict[str, str], int]:
    """New texts of the files that one round of fixes edits, and how many fixes went in."""
    busy: set[str] = set()
    texts: dict[str, str] = {}
    applied = 0
    for finding, fix in _applicable(report, unsafe):
        paths = {edit.path for edit in fix.edits}
        concerned = paths | _concerned(report, finding, paths)
        if concerned & busy:
            continue
        try:
            changed = {path: _edited(report, path, fix.edits) for path in paths}
        except EditConflict:
            continue  # its edits contradict each other; the finding stays
        if all(report.project.source(path).text == text for path, text in changed.items()):
            continue
        texts.update(changed)
        busy |= concerned
        applied += 1
    return texts, applied


def _applicable(report: Report, unsafe: bool) -> Iterator[tuple[Finding, Fix]]:
    """Fixes in the order in which they go in: errors before warnings, safe before unsafe."""
    ordered = sorted(report.findings, key=lambda f: (-f.severity.rank, f.fix is None or f.fix.safety is Safety.unsafe))
    for finding in ordered:
        if finding.fix is not None and finding.fix.edits and (unsafe or finding.fix.safety is Safety.safe):
            yield finding, finding.fix


def _concerned(report: Report, finding: Finding, paths: set[str]) -> set[str]:
    """Every file of every study that reads one of `paths`."""
    found: set[str] = set()
    for result in report.studies:
        if paths & set(result.study.paths):
            found |= set(result.study.paths)
    return found


def _edited(report: Report, path: str, edits: tuple[Edit, ...]) -> str:
    return splice(report.project.source(path).text, [edit for edit in edits if edit.path == path])


def diff(result: Fixed, cwd: Path) -> str:
    """The unified diff of all that was fixed, paths relative to `cwd`."""
    return diff_of(result.before.project, result.texts, cwd)


def diff_of(project: Project, texts: Mapping[str, str], cwd: Path) -> str:
    """The unified diff of new texts of a project's files, paths relative to `cwd`."""
    pieces = []
    for path in sorted(texts):
        name = Path(os.path.relpath(project.root / path, real(cwd))).as_posix()
        pieces.append(unified(project.source(path).text, texts[path], f"a/{name}", f"b/{name}"))
    return "".join(pieces)


def unified(old: str, new: str, before: str, after: str) -> str:
    """The unified diff of two texts under these names."""
    from difflib import unified_diff

    lines = unified_diff(_lines(old), _lines(new), before, after)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines with their endings; only a newline ends one."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def write(result: Fixed) -> Report:
    """Writes the changed files; the report afterwards. Each file is the old one or the new one at every moment."""
    from preflight.fixes.write import write_text

    for path, text in result.texts.items():
        write_text(result.before.project, path, text)
    return replace(result.after, fixed=result.count)


def written(batch: Batch, options: CheckOptions, cwd: Path, unsafe: bool, view: Callable[[Report], Report]) -> Report:
    """Checks the files of a batch, and writes the fixes. Another run that writes there as well waits for this one."""
    from preflight.fixes.write import alone, remove_unfinished

    with alone(batch.root) as sole:
        result = fixed(*setup(batch, options, cwd), unsafe, view)
        if sole:
            paths = (*batch.named, *batch.walked, *result.texts)
            remove_unfinished({real(batch.root / path).parent for path in paths})
        return write(result)
