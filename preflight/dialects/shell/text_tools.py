"""What the usual tools for text print (sed, awk, cut, head, ...): lines in, lines out. Nothing is run.

Only the forms that people use to take a part of a file are followed; all others give None. The words of POSIX and of
GNU coreutils 9 decide. Each line keeps its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Const, Origin, Span

Line = Const
"""A text without a newline, and its place. The place is editable if the file has exactly this text there."""

Lines = Sequence[Line]
Tool = Callable[[list[str], "Lines | None", "Callable[[str], Lines | None]"], "Lines | None"]


def text_of(line: Line) -> str:
    return line.value if isinstance(line.value, str) else str(line.value)


def part(line: Line, start: int, end: int) -> Line:
    """Some characters of a line, with their own place if the line has an exact one."""
    text, origin = text_of(line), line.origin
    if origin is not None:
        length = origin.span.end - origin.span.start
        quoted = int(length == len(text) + 2)
        exact = origin.editable and length in (len(text), len(text) + 2)
        span = Span(origin.span.start + quoted + start, origin.span.start + quoted + end) if exact else origin.span
        origin = Origin(origin.path, span, None, origin.via, exact)
    return Const(text[start:end], origin)


def lines_of(text: Line) -> Lines:
    """The lines of a text. The newline at its end ends the last line."""
    whole, found, at = text_of(text), [], 0
    while at < len(whole):
        end = whole.find("\n", at)
        end = len(whole) if end < 0 else end
        found.append(part(text, at, end))
        at = end + 1
    return found


def in_a_row(texts: Lines, separator: str, origin: Origin | None = None) -> Line:
    """Texts as one. It has an exact place if they stand in a row in a file; `origin` is the place of an empty one."""
    if len(texts) == 1:
        return texts[0]
    places = [text.origin for text in texts]
    return Const(separator.join(text_of(text) for text in texts), _row(places, len(separator)) if texts else origin)


def _row(places: Sequence[Origin | None], gap: int) -> Origin | None:
    """The place from the first to the last of some places; editable if only `gap` characters are between them."""
    known = [place for place in places if place is not None]
    if not known or len(known) < len(places):
        return known[0] if known else None
    first, last = known[0], known[-1]
    if any(place.path != first.path for place in known):
        return Origin(first.path, first.span, None, first.via, False)
    exact = all(place.editable for place in known) and all(
        after.span.start - before.span.end == gap for before, after in pairwise(known)
    )
    return Origin(first.path, Span(first.span.start, max(first.span.end, last.span.end)), None, first.via, exact)


def fields_of(line: Line, separators: str | None, most: int = 0) -> Lines:
    """The fields of a line, as `read` splits it (None: at white space); the last of at most `most` has the rest.

    White space around a field is left out, if it is a separator; any other separator ends exactly one field (POSIX.1,
    2.6.5 Field Splitting).
    """
    separators = " \t\n" if separators is None else separators
    blank = "".join(one for one in separators if one in " \t\n")
    other = "".join(one for one in separators if one not in " \t\n")
    text, at = text_of(line), 0
    found: list[Line] = []
    end = len(text.rstrip(blank)) if blank else len(text)
    while at < end and text[at] in blank:
        at += 1
    while at < end:
        stop = at
        last = most and len(found) == most - 1
        while stop < end and (last or text[stop] not in separators):
            stop += 1
        found.append(part(line, at, stop))
        seen, at = False, stop
        while at < end and (text[at] in blank or (text[at] in other and not seen)):
            seen, at = seen or text[at] in other, at + 1
    return found


# --- tools ------------------------------------------------------------------------------------------------------------


def _given(names: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """The lines of the files that a tool names; of its standard input if it names none."""
    if not names or names == ["-"]:
        return stdin
    found: list[Line] = []
    for name in names:
        lines = files(name)
        if lines is None:
            return None
        found += lines
    return found


def _cat(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    return None if any(word.startswith("-") and word != "-" for word in words) else _given(words, stdin, files)


def _one(lines: Lines, number: int) -> Lines:
    return lines[number - 1 : number] if number > 0 else ()


def _sed(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """One line: `sed -n 3p`, `sed -n '3{p;q}'`, `sed '3q;d'`, `sed '3!d'`."""
    quiet = words[:1] in (["-n"], ["-ne"])
    words = words[quiet:]
    words = words[1:] if words[:1] == ["-e"] else words
    script = words[0].replace(" ", "") if words else ""
    match = re.fullmatch(r"(\d+)(?:p|\{p;?q;?\}|p;\1q)" if quiet else r"(\d+)(?:q;d|!d)", script)
    lines = _given(words[1:], stdin, files) if match is not None else None
    return None if match is None or lines is None else _one(lines, int(match[1]))


_AWK = regex(r"(?:NR==(?P<line>\w+?)(?P<more>[+-]\d+)?)?(?:\{print(?:\$(?P<field>\d+|NF))?;?(?:exit;?)?\})?", re.ASCII)


def _awk(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """One line or one field: `awk 'NR==3'`, `awk -F, -v n=3 'NR==n {print $2}'`."""
    separator, variables = None, {}
    while words and words[0][:2] in ("-F", "-v") and len(words) > 1:
        option, words = words[0], words[1:]
        value = option[2:]
        if not value:
            value, words = words[0], words[1:]
        if option.startswith("-F"):
            separator = value.replace("\\t", "\t")
        else:
            name, _, set_to = value.partition("=")
            variables[name] = set_to
    match = _AWK.fullmatch(re.sub(r"\s+", "", words[0])) if words else None
    if (
        match is None
        or not match[0]
        or (separator is not None and (len(separator) != 1 or separator in "\\^$.[]|()*+?{}"))
    ):
        return None
    lines = _given(words[1:], stdin, files)
    number = variables.get(match["line"] or "", match["line"])
    if lines is None or (number is not None and not number.isdecimal()):
        return None
    if number is not None:
        lines = _one(lines, int(number) + int(match["more"] or 0))
    if match["field"] in (None, "0"):
        return lines
    return [_field(line, separator, match["field"]) for line in lines]


def _field(line: Line, separator: str | None, field: str) -> Line:
    found = fields_of(line, None if separator in (None, " ") else separator)
    index = len(found) - 1 if field == "NF" else int(field) - 1
    return found[index] if 0 <= index < len(found) else part(line, 0, 0)


def _count(words: list[str]) -> tuple[str, list[str]] | None:
    """The number of `head` and `tail`, with its sign, and the other words."""
    match = re.fullmatch(r"(?:-n|--lines=|-)([+-]?\d+)", words[0]) if words else None
    if match is not None:
        return match[1], words[1:]
    if words[:1] == ["-n"] and len(words) > 1 and re.fullmatch(r"[+-]?\d+", words[1]):
        return words[1], words[2:]
    return None if words and words[0].startswith("-") else ("10", words)


def _head(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    asked = _count(words)
    lines = None if asked is None or len(asked[1]) > 1 else _given(asked[1], stdin, files)
    if asked is None or lines is None:
        return None
    number = int(asked[0])
    return lines[: max(0, len(lines) + number)] if asked[0].startswith("-") else lines[:number]


def _tail(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    asked = _count(words)
    lines = None if asked is None or len(asked[1]) > 1 else _given(asked[1], stdin, files)
    if asked is None or lines is None:
        return None
    number = abs(int(asked[0]))
    return lines[max(0, number - 1) :] if asked[0].startswith("+") else lines[max(0, len(lines) - number) :]


def _cut(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """One field: `cut -d, -f2`. A line without the separator is printed whole."""
    found, rest, at = {"-d": "\t"}, [], 0
    words = [re.sub(r"^--delimiter=", "-d", re.sub(r"^--fields=", "-f", word)) for word in words]
    while at < len(words):
        option = words[at][:2]
        if option in ("-d", "-f"):
            value = words[at][2:] or "".join(words[at + 1 : at + 2])
            at += 1 + (words[at] == option)
            found[option] = value
            continue
        rest.append(words[at])
        at += 1
    separator, field = found["-d"], found.get("-f", "")
    lines = _given(rest, stdin, files)
    if lines is None or len(separator) != 1 or not re.fullmatch(r"[1-9]\d{0,3}", field):
        return None
    return [_cut_one(line, separator, int(field)) for line in lines]


def _cut_one(line: Line, separator: str, field: int) -> Line:
    text, start = text_of(line), 0
    if separator not in text:
        return line
    for _ in range(field - 1):
        at = text.find(separator, start)
        if at < 0:
            return part(line, 0, 0)
        start = at + 1
    end = text.find(separator, start)
    return part(line, start, len(text) if end < 0 else end)


def _tr(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """A separator that becomes a blank, and carriage returns and quotes that are deleted."""
    if stdin is None or len(words) != 2:
        return None
    if words[0] == "-d" and words[1] in ("\\r", '"', "'"):
        return [_without(line, "\r" if words[1] == "\\r" else words[1]) for line in stdin]
    if len(words[0]) == 1 and words[1] == " ":
        return [Const(text_of(line).replace(words[0], " "), line.origin) for line in stdin]
    return None


def _without(line: Line, one: str) -> Line:
    text = text_of(line)
    stripped = text.strip(one)
    if one in stripped:
        origin = line.origin
        place = Origin(origin.path, origin.span, None, origin.via, False) if origin is not None else None
        return Const(text.replace(one, ""), place)
    start = len(text) - len(text.lstrip(one))
    return part(line, start, start + len(stripped))


def _grep(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    """Lines with or without a literal text: `grep -v '^#'`."""
    inverse = words[:1] == ["-v"]
    words = words[inverse:]
    match = re.fullmatch(r"(\^?)([\w #:=,-]*)(\$?)", words[0]) if words and not words[0].startswith("-") else None
    lines = _given(words[1:], stdin, files) if match is not None and len(words) <= 2 else None
    if match is None or lines is None:
        return None
    pattern = re.compile(f"{match[1]}{re.escape(match[2])}{match[3]}")
    return [line for line in lines if (pattern.search(text_of(line)) is None) == inverse]


def _wc(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    lines = _given(words[1:], stdin, files) if words[:1] == ["-l"] and len(words) <= 2 else None
    return None if lines is None else [Const(" ".join([str(len(lines)), *words[1:]]))]


def _seq(words: list[str], stdin: Lines | None, files: Callable[[str], Lines | None]) -> Lines | None:
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d{1,6}", word) for word in words):
        return None
    first, step, last = {1: (1, 1, 0), 2: (0, 1, 1), 3: (0, 1, 2)}[len(words)]
    low = int(words[0]) if len(words) > 1 else first
    by = int(words[step]) if len(words) == 3 else 1
    high = int(words[last])
    return None if by == 0 else [Const(str(one)) for one in range(low, high + (1 if by > 0 else -1), by)]


TOOLS: dict[str, Tool] = {
    "cat": _cat, "sed": _sed, "awk": _awk, "gawk": _awk, "mawk": _awk, "head": _head, "tail": _tail, "cut": _cut,
    "tr": _tr, "grep": _grep, "wc": _wc, "seq": _seq,
}  # fmt: skip
"""Tools that take words, and lines of their standard input or of files. `echo` and `xargs` are joined in `outputs`."""
