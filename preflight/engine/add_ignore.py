"""`check --add-ignore`: writes a comment beside each finding that ignores it.

The edits are proved as those of fixes are: in memory each text is read again with its comment and has to mean the same,
then everything is checked again, and exactly the findings have to be gone that the comments name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.documents.layout import line_end
from preflight.engine.check import CheckSetup, check
from preflight.engine.rounds import Fixed
from preflight.engine.suppress import EXPIRED, UNUSED, ignores
from preflight.fixes.comments import above, means_the_same, places
from preflight.fixes.compare import Intent, differences
from preflight.fixes.write import write_text
from preflight.vocabulary.findings import Finding, Safety
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.text import Edit, EditConflict, Source, splice
from preflight.vocabulary.values import Span
from preflight.vocabulary.words import plural

NOT_IGNORED = frozenset({"internal-error", "unreadable-file", "time-limit", "stale-baseline", UNUSED, EXPIRED})
"""Findings about the check itself, and about the ignores."""
_NAMED = 5
"""Findings that no comment can ignore and that a note names; more are counted."""

View = Callable[[Report], Report]


class _Place(Struct, frozen=True):
    """A line of a file with findings that start there, and the last line that is part of each of them."""

    path: str
    line: int
    end: int
    whole_file: bool
    """The findings are about the file, not about its first line."""
    findings: tuple[Finding, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(sorted({finding.rule for finding in self.findings}))


def ignored(project: Project, asked: CheckSetup, view: View) -> Fixed:
    """Adds the comments, in memory. `view` leaves out findings that a baseline lists; they need no comment."""
    before = view(check(project, asked))
    wanted = [place for place in _places(before) if place.path not in project.overlay]
    edits = [(place, edit) for place in wanted if (edit := _proved(before, place)) is not None]
    found = _together(before, edits, asked, view)
    if found is None:  # one file spoils the others: each by itself, those that hold together
        good = [path for path in _paths(edits) if _together(before, _of(edits, [path]), asked, view) is not None]
        edits = _of(edits, good)
        found = _together(before, edits, asked, view)
    if found is None:
        edits, found = [], (before, {})
    after, texts = found
    count = sum(len(place.findings) for place, _ in edits)
    done = {id(place) for place, _ in edits}
    left = [place for place in wanted if id(place) not in done]
    return Fixed(before, replace(after, notes=(*after.notes, *_notes(count, texts, left))), texts, count)


def write(result: Fixed) -> Report:
    """Writes the changed files; the report afterwards."""
    for path, text in result.texts.items():
        write_text(result.before.project, path, text)
    return result.after


def _places(report: Report) -> list[_Place]:
    """Where comments are wanted, in the order of the files."""
    found: dict[tuple[str, int, bool], list[tuple[int, Finding]]] = {}
    for finding in report.findings:
        if finding.rule in NOT_IGNORED or finding.origin is None:
            continue
        try:
            source = report.project.source(finding.origin.path)
        except UnreadableFile:
            continue
        place = source.place(finding.origin.span)
        whole = finding.origin.span.start == finding.origin.span.end == 0
        found.setdefault((finding.origin.path, place.line, whole), []).append((place.end_line, finding))
    return [
        _Place(path, line, min(end for end, _ in some), whole, tuple(finding for _, finding in some))
        for (path, line, whole), some in sorted(found.items(), key=lambda item: item[0])
    ]


def _proved(report: Report, place: _Place) -> Edit | None:
    """The first edit after which the file means the same and has a comment that ignores the place's findings."""
    source = report.project.source(place.path)
    return next((e for e in _edits(source, place) if means_the_same(source, e) and _acts(source, e, place)), None)


def _edits(source: Source, place: _Place) -> Iterator[Edit]:
    for old in ignores(source):  # a comment that is there gets the new names
        if old.line is not None and place.line <= old.line <= place.end and old.acts and old.rules:
            names = ", ".join(dict.fromkeys([*old.rules, *place.rules]))
            end = line_end(source.text, old.span.end)
            head, rest = source.text[old.span.start : old.span.end], source.text[old.span.end : end]
            yield Edit(source.path, Span(old.span.start, end), f"{head[: head.index('[')]}[{names}]{rest}")
    names = ", ".join(place.rules)
    if not place.whole_file:
        yield from places(source, place.line, place.end, f"# preflight: ignore[{names}]")
        return
    line = 2 if source.text.startswith("#!") and source.line_count > 1 else 1
    first = above(source, line, f"# preflight: ignore-file[{names}]")
    if first is not None:
        yield first


def _acts(source: Source, edit: Edit, place: _Place) -> bool:
    after = Source(source.path, splice(source.text, [edit]), source.bom)
    moved = edit.text.count("\n") if source.line_column(edit.span.start)[0] <= place.line else 0
    lines = range(place.line + moved, place.end + moved + 1)
    return any(
        one.acts and set(place.rules) <= set(one.rules) and (one.line is None or one.line in lines)
        for one in ignores(after)
    )


def _together(
    before: Report, edits: Sequence[tuple[_Place, Edit]], asked: CheckSetup, view: View
) -> tuple[Report, dict[str, str]] | None:
    """The report and the texts with all edits; None if anything but the findings of these places is another then."""
    if not edits:
        return None
    texts = {}
    for path in _paths(edits):
        try:
            texts[path] = splice(before.project.source(path).text, _united(edit for _, edit in _of(edits, [path])))
        except EditConflict:
            return None
    after = view(check(before.project.with_overlay(texts), asked))
    gone = [id(finding) for place, _ in edits for finding in place.findings]
    left = Counter(_key(finding) for finding in before.findings if id(finding) not in gone)
    if left != Counter(map(_key, after.findings)) or not _same_studies(before, after):
        return None
    return after, texts


def _united(edits: Iterable[Edit]) -> list[Edit]:
    """The edits of a file; new lines at one place become one edit."""
    found: dict[tuple[int, int], Edit] = {}
    for edit in edits:
        old = found.get((edit.span.start, edit.span.end))
        new = replace(edit, text=old.text + edit.text) if old is not None and edit.text.endswith("\n") else edit
        found[edit.span.start, edit.span.end] = new
    return list(found.values())


def _same_studies(before: Report, after: Report) -> bool:
    nothing = Intent((), (), Safety.safe)
    return len(before.studies) == len(after.studies) and not any(
        True
        for old, new in zip(before.studies, after.studies, strict=True)
        for _ in differences(old.study, new.study, nothing)
    )


def _key(finding: Finding) -> tuple[str, str, str, tuple[str, ...]]:
    path = finding.origin.path if finding.origin is not None else ""
    return finding.rule, finding.severity.value, path, finding.settings


def _paths(edits: Iterable[tuple[_Place, Edit]]) -> list[str]:
    return list(dict.fromkeys(edit.path for _, edit in edits))


def _of(edits: Iterable[tuple[_Place, Edit]], paths: Sequence[str]) -> list[tuple[_Place, Edit]]:
    return [(place, edit) for place, edit in edits if edit.path in paths]


def _notes(count: int, texts: dict[str, str], left: Sequence[_Place]) -> Iterator[str]:
    if count:
        verb = "is" if count == 1 else "are"
        yield f"{plural(count, 'finding')} {verb} ignored now, by comments in {', '.join(texts)}"
    named = [f"{place.path}:{place.line} ({', '.join(place.rules)})" for place in left]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    if named:
        yield f"no comment can be proved to ignore only what is found at {', '.join(named[:_NAMED])}{more}"
