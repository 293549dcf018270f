"""Suppression of findings: by comments in the files, by globs in the settings, by a baseline of old ones."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from preflight.system import observed
from preflight.vocabulary.caches import regex
from preflight.vocabulary.findings import Confidence, Finding, Fix, Safety, Severity
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.settings import matches
from preflight.vocabulary.text import Edit, Source
from preflight.vocabulary.values import Origin, Span

UNUSED = "unused-ignore"
EXPIRED = "expired-ignore"
_COMMENT = regex(
    r"(?P<comment>#[ \t]*preflight:[ \t]*(?P<kind>ignore-file|ignore)\b(?:[ \t]*\[(?P<rules>[^\]\r\n]*)\])?)"
    r"(?P<rest>[^\r\n]*)"
)
_UNTIL = regex(r"[ \t]*until[ \t]+(?P<day>\d+[-/.]\w+[-/.]\w+)[ \t]*:?")
"""A date, or what somebody means as one: three parts, the first a number. `until torch 2.9` is a reason."""
_DAY = regex(r"\d{4}-\d\d-\d\d")
_LONE = regex(r"[ \t]*#(?!SBATCH\b|!)")
"""A line that is a comment and nothing else: neither a directive of sbatch nor an interpreter line."""


class Ignore(Struct, frozen=True):
    """One comment: the rules it names (none: malformed) and the line it speaks of (None: the whole file)."""

    path: str
    rules: tuple[str, ...]
    line: int | None
    span: Span
    """The comment up to its bracket."""
    whole: Span
    """The span to delete with the comment: to the line's end, with the blanks before it, or the whole line."""
    until: str = ""
    """The last day on which it ignores anything, as it is written; "": it always does."""
    reason: str = ""

    @property
    def dated(self) -> bool:
        """Whether it has no date or one that can be read."""
        return not self.until or _is_day(self.until)

    @property
    def acts(self) -> bool:
        """Whether it ignores findings today."""
        return not self.until or (self.dated and not observed.passed(self.until))


def _is_day(text: str) -> bool:
    try:
        return _DAY.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def ignores(source: Source) -> list[Ignore]:
    """Every `# preflight: ignore[rule] until 2026-12-31: reason` of a file; date and reason may be missing, and
    `ignore-file` speaks of the whole file."""
    if "preflight:" not in source.text:
        return []
    strings = _strings(source) if source.path.endswith(".py") else None
    found = []
    for match in _COMMENT.finditer(source.text):
        start, end = match.span()
        line = source.line_column(start)[0]
        before = source.line(line)[: source.line_column(start)[1] - 1]
        if strings is not None:
            if start not in strings:
                continue
        elif _quoted(before):
            continue
        lone = not before.strip()
        names = tuple(name.strip() for name in (match["rules"] or "").split(",") if name.strip())
        target = None if match["kind"] == "ignore-file" else _target(source, line) if lone else line
        whole = _whole_line(source, line) if lone else Span(start - len(before) + len(before.rstrip()), end)
        dated = _UNTIL.match(match["rest"])
        until, reason = ("", match["rest"]) if dated is None else (dated["day"], match["rest"][dated.end() :])
        comment = Span(start, match.end("comment"))
        found.append(Ignore(source.path, names, target, comment, whole, until, reason.strip()))
    return found


def _strings(source: Source) -> set[int] | None:
    """Offsets at which Python sees a comment start; None where the text cannot be tokenised."""
    import tokenize

    starts = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT:
                starts.add(source.offset(token.start[0], token.start[1] + 1))
    except (tokenize.TokenError, SyntaxError, IndexError):
        return None
    return starts


def _quoted(before: str) -> bool:
    """Whether a `#` after this text is within a quoted word, or no comment at all because it touches a word."""
    if before and before[-1] not in " \t":
        return True
    quote = ""
    for char, last in zip(before, " " + before, strict=False):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and not last.isalnum():
            quote = char
    return bool(quote)


def _target(source: Source, line: int) -> int:
    """The line that a comment on a separate line is about: the next one that is not a comment or empty."""
    for number in range(line + 1, source.line_count + 1):
        text = source.line(number)
        if text.strip() and not _LONE.match(text):
            return number
    return line


def _whole_line(source: Source, line: int) -> Span:
    start = source.offset(line, 1)
    end = source.offset(line + 1, 1) if line < source.line_count else len(source.text)
    return Span(start, end)


def inline(
    findings: Iterable[Finding],
    project: Project,
    paths: Iterable[str],
    enabled: Collection[str],
    known: Collection[str],
) -> tuple[list[Finding], int]:
    """The findings that no comment takes out, one more for each comment (of `paths`) that took none, and how many went.

    A comment that names a rule which is not `enabled` in this run cannot be told to be unused.
    """
    written: dict[str, list[Ignore]] = {}
    for path in dict.fromkeys(paths):
        try:
            written[path] = ignores(project.source(path))
        except UnreadableFile:
            continue  # its own finding says so
    kept: list[Finding] = []
    used: set[tuple[Ignore, str]] = set()
    total = 0
    for finding in findings:
        total += 1
        taking = [
            ignore
            for ignore in written.get(finding.origin.path if finding.origin else "", ())
            if finding.rule in ignore.rules and ignore.acts and _covers(ignore, finding, project)
        ]
        used |= {(ignore, finding.rule) for ignore in taking}
        if not taking:
            kept.append(finding)
    gone = total - len(kept)
    for found in written.values():
        kept += [one for ignore in found for one in _unused(ignore, project, used, enabled, known)]
    return kept, gone


def _covers(ignore: Ignore, finding: Finding, project: Project) -> bool:
    if ignore.line is None or finding.origin is None:
        return ignore.line is None
    place = project.source(ignore.path).place(finding.origin.span)
    return place.line <= ignore.line <= max(place.line, place.end_line)


def _unused(
    ignore: Ignore, project: Project, used: set[tuple[Ignore, str]], enabled: Collection[str], known: Collection[str]
) -> Iterator[Finding]:
    """The finding for a comment that does nothing, or that does less than it says."""
    if not ignore.acts and ignore.dated:
        if EXPIRED in enabled:
            yield _expired(ignore)
        return
    if UNUSED not in enabled or UNUSED in ignore.rules:
        return
    if not ignore.dated:
        yield _about(ignore, f"this ignore does nothing: its date {ignore.until} is none, write until YYYY-MM-DD", None)
        return
    if not ignore.rules:
        yield _about(ignore, "this ignore names no rule and does nothing: write ignore[rule-name]", None)
        return
    idle = [name for name in ignore.rules if (ignore, name) not in used and (name in enabled or name not in known)]
    if not idle:
        return
    strange = [name for name in idle if name not in known]
    why = f"there is no rule {strange[0]}" if strange else f"nothing here triggers {', '.join(idle)}"
    yield _about(ignore, f"unused ignore: {why}", _removal(ignore, idle, project))


def _expired(ignore: Ignore) -> Finding:
    """What it says to the reader who let it pass; the findings themselves are there again."""
    edit = Edit(ignore.path, ignore.whole, "")
    fix = Fix("remove the comment", Safety.unsafe, (edit,), "it may need a later date instead")
    what = ", ".join(ignore.rules) or "no rule"
    message = f"this ignore of {what} ended on {ignore.until}{f' ({ignore.reason})' if ignore.reason else ''}"
    found = replace(_about(ignore, message, fix), rule=EXPIRED, label="no longer ignores anything")
    return replace(found, help=("remove the cause of the finding and the comment, or give the comment a later date",))


def _about(ignore: Ignore, message: str, fix: Fix | None) -> Finding:
    return Finding(
        rule=UNUSED,
        severity=Severity.warning,
        confidence=Confidence.high,
        message=message,
        origin=Origin(ignore.path, ignore.span),
        label="does nothing",
        fix=fix,
    )


def _removal(ignore: Ignore, idle: Sequence[str], project: Project) -> Fix:
    """Takes the idle names out of the brackets, or the comment away where none is left. Settings are not concerned."""
    left = [name for name in ignore.rules if name not in idle]
    if not left:
        return Fix("remove the comment", Safety.safe, (Edit(ignore.path, ignore.whole, ""),))
    text = project.source(ignore.path).text[ignore.span.start : ignore.span.end]
    edit = Edit(ignore.path, ignore.span, f"{text[: text.index('[')]}[{', '.join(left)}]")
    return Fix(f"ignore only {', '.join(left)}", Safety.safe, (edit,))


def per_file(findings: Iterable[Finding], rules: Mapping[str, Sequence[str]]) -> tuple[list[Finding], int]:
    """The findings that `[tool.preflight.per-file-ignores]` leaves, and how many it took out."""
    kept, gone = [], 0
    for finding in findings:
        path = finding.origin.path if finding.origin else ""
        if any(_names(finding.rule, names) and matches(path, [glob]) for glob, names in rules.items()):
            gone += 1
        else:
            kept.append(finding)
    return kept, gone


def _names(rule: str, names: Sequence[str]) -> bool:
    return rule in names or "all" in names


def without_fix_of(finding: Finding) -> Finding:
    """The finding with nothing to write, for rules whose settings say `fix = "never"`."""
    return replace(finding, fix=None, proposals=())
