"""Parser of `#SBATCH` lines, as sbatch reads them (src/sbatch/opt.c: _next_line, _get_argument, getopt_long)."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Span, Unknown


# Options of sbatch(1), Slurm 25.05: without a value, with an optional value (only behind `=`), with a value.
def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLAGS = _names(
    "batch contiguous external help hold ignore-pbs no-requeue overcommit quiet reboot requeue "
    "spread-job stepmgr test-only usage use-min-nodes verbose version wait"
)
_OPTIONAL = _names("exclusive get-user-env nice no-kill oversubscribe parsable propagate share")
_VALUED = _names(
    "account acctg-freq array bb bbf begin chdir cluster cluster-constraint clusters comment constraint container "
    "container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency "
    "distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node "
    "gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type "
    "mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem_bind mincpus network nodefile nodelist nodes ntasks "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output partition power "
    "prefer priority profile qos reservation resv-ports segment signal sockets-per-node switches tasks tasks-per-node "
    "thread-spec threads-per-core time time-min tmp tree-width tres-bind tres-per-task uid wait-all-nodes wckey wrap"
)
_SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "h": "help", "H": "hold", "i": "input",
    "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "n": "ntasks", "N": "nodes",
    "O": "overcommit", "o": "output", "p": "partition", "q": "qos", "Q": "quiet", "S": "core-spec",
    "s": "oversubscribe", "t": "time", "u": "usage", "v": "verbose", "V": "version", "W": "wait", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
_ALIASES = {
    "tasks": "ntasks", "tasks-per-node": "ntasks-per-node", "cluster": "clusters", "share": "oversubscribe",
    "mem_bind": "mem-bind",
}  # fmt: skip
_MARKER = regex(r"#SBATCH|#SLURM(?=[ \t]+--?[A-Za-z])")
"""sbatch reads `#SLURM` too, with a warning. Here a comment that only starts with this word is not a directive."""
PLACEHOLDER = regex(
    r"\{\{(?:(?!\{\{)[^\n])*?\}\}|\{%(?:(?!\{%)[^\n])*?%\}|\{[ \t]*(?:[\w.]+[ \t]*)?\}|"  # each start is read once
    r"<[^<>\n]+>|@\w+@|%\(\w+\)[sd]|(?:^|(?<==))%[ds]$|"
    r"\[\[?[A-Z_]+\]\]?|\b(?:YOUR|MY|CHANGE|FILL|TODO|XXX)[A-Z_]*\b"
)
"""What a person or a program replaces before the script is submitted: such a script is a template, and no mistake."""
_LOOKS_LIKE = regex(r"[ \t]*#+[ \t]*SBATCH(?=[ \t-])", re.I)


class Directive(Struct, frozen=True):
    """One option: its long name, its value without quotes (None: no value), and their places.

    `value_span` includes the quotes. `known` is False for an option that sbatch does not have, so that it refuses the
    script. `component` counts `hetjob` separators. `line` counts from 1. `unread` says why a value is not known: its
    text then stands for it.
    """

    name: str
    value: str | None
    span: Span
    name_span: Span
    value_span: Span | None
    line: int
    known: bool = True
    component: int = 0
    unread: Unknown | None = None


class Ignored(Struct, frozen=True):
    """A line, or the rest of the directives, that sbatch does not read.

    `reason` is after-command, double-hash, space, indented, case, after-word or quote; `message` explains it. `text`
    has the options as written.
    """

    reason: str
    message: str
    text: str
    span: Span
    line: int


class _Word(Struct, frozen=True):
    text: str
    places: tuple[int, ...]
    """The offset of each character of `text`."""
    span: Span
    line: int


class _Unmatched(Exception):
    """A quote is open at the end of a line: sbatch refuses the script."""


def read_directives(text: str, heredocs: Sequence[Span] = ()) -> tuple[tuple[Directive, ...], tuple[Ignored, ...]]:
    """The options in their order, and lines that only look like directives. Lines inside `heredocs` are left out."""
    words: list[_Word] = []
    ignored: list[Ignored] = []
    starts = [span.start for span in heredocs]
    command_line = 0
    for number, start, line in _lines(text):
        inside = bisect_right(starts, start) - 1
        if inside >= 0 and heredocs[inside].start <= start < heredocs[inside].end:
            continue
        if _MARKER.match(line):
            if command_line:
                message = f"it is after the first command (line {command_line})"
                _ignore(ignored, "after-command", message, line, start, number)
                continue
            try:
                words += _words(line, start, number)
            except _Unmatched:
                _ignore(ignored, "quote", "a quote is not closed: sbatch refuses the script", line, start, number)
        elif (match := _LOOKS_LIKE.match(line)) is not None:
            _looks_like(ignored, match.group(), line, start, number)
        elif not command_line and line.strip() and not line.lstrip().startswith("#"):
            command_line = number
    directives, rest = _options(words)
    if rest is not None:
        message = f"sbatch stops reading options at {rest.text!r}, which is not an option"
        ignored.append(Ignored("after-word", message, rest.text, rest.span, rest.line))
    return directives, tuple(ignored)


def _lines(text: str) -> list[tuple[int, int, str]]:
    lines, start = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        lines.append((number, start, line))
        start += len(line) + 1
    return lines


def _ignore(ignored: list[Ignored], reason: str, message: str, line: str, start: int, number: int) -> None:
    stripped = line.rstrip()
    span = Span(start + len(line) - len(line.lstrip()), start + len(stripped))
    options = re.sub(r"^\s*#+\s*SBATCH\s*", "", stripped, flags=re.I)
    ignored.append(Ignored(reason, message, options, span, number))


def _looks_like(ignored: list[Ignored], head: str, line: str, start: int, number: int) -> None:
    if not re.search(r"SBATCH[ \t]*--?[A-Za-z]", line, re.I):
        return  # prose that mentions it
    if not head.endswith("SBATCH") and head.strip().lstrip("#")[:1] in " \t":
        return  # prose that shows a command line: `#   sbatch --array=0 run.sbatch`
    if head[0] in " \t":
        _ignore(ignored, "indented", "it does not start at the beginning of the line", line, start, number)
    elif head.startswith("##"):
        _ignore(ignored, "double-hash", "it starts with more than one #, which is a comment", line, start, number)
    elif head[1] in " \t":
        _ignore(ignored, "space", "there is a space between # and SBATCH, which is a comment", line, start, number)
    else:
        _ignore(ignored, "case", "SBATCH must be in capitals", line, start, number)


def _words(line: str, start: int, number: int) -> list[_Word]:
    """The words of a directive line. Quotes group, a backslash escapes the next character, an unquoted `#` starts a
    comment."""
    line = PLACEHOLDER.sub(lambda found: re.sub(r"\s", "_", found.group()), line)  # it stands for one word
    words: list[_Word] = []
    marker = _MARKER.match(line)
    at, size = marker.end() if marker is not None else 0, len(line)
    while True:
        while at < size and line[at].isspace():
            at += 1
        begin, chars, places, quote = at, [], [], ""
        while at < size and (quote or not line[at].isspace()):
            char = line[at]
            if char == "\\":
                at += 1
                if at == size:
                    break
                char = line[at]
            elif quote and char == quote:
                quote, at = "", at + 1
                continue
            elif not quote and char in "\"'":
                quote, at = char, at + 1
                continue
            elif not quote and char == "#":
                break
            chars.append(char)
            places.append(start + at)
            at += 1
        if quote:
            raise _Unmatched
        if not chars:
            return words
        words.append(_Word("".join(chars), tuple(places), Span(start + begin, start + at), number))


def read_arguments(arguments: Sequence[str]) -> tuple[tuple[Directive, ...], tuple[Ignored, ...]]:
    """The options of a command line without the script's name; places are offsets in `shlex.join(arguments)`.

    `:` starts the next component of a heterogeneous job. A word that is not an option is returned as ignored.
    """
    words: list[_Word] = []
    at = 0
    for argument in arguments:
        written = shlex.quote(argument)
        start = at + written.find(argument) if argument in written else at
        places = tuple(range(start, start + len(argument)))
        words.append(_Word(argument if argument != ":" else "hetjob", places, Span(at, at + len(written)), 1))
        at += len(written) + 1
    directives, rest = _options(words)
    if rest is None:
        return directives, ()
    message = f"sbatch takes {rest.text!r} as the script"
    return directives, (Ignored("after-word", message, rest.text, rest.span, rest.line),)


def option_at(arguments: Sequence[str], index: int) -> tuple[tuple[Directive, ...], int]:
    """The options in one word of a command line, and the number of words behind it that they take."""
    near = arguments[index : index + 2]
    word, *following = (_Word(text, tuple(range(len(text))), Span(0, len(text)), at) for at, text in enumerate(near))
    found, used = (_long if word.text.startswith("--") else _short)(word, following[0] if following else None, 0)
    return tuple(found), used


def takes_no_value(name: str) -> bool:
    """Whether sbatch refuses a long option with `=` behind it (getopt_long: no_argument)."""
    return name in _FLAGS or name == "oversubscribe"


def _options(words: list[_Word]) -> tuple[tuple[Directive, ...], _Word | None]:
    """As getopt_long with "+": it stops at the first word that is not an option, and returns that word."""
    directives: list[Directive] = []
    index = component = 0
    while index < len(words):
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else None
        if word.text in ("hetjob", "packjob"):
            component += 1
            index += 1
            continue
        if word.text == "--" or not word.text.startswith("-") or word.text == "-":
            return tuple(directives), word
        read = _long if word.text.startswith("--") else _short
        found, used = read(word, following, component)
        directives += found
        index += 1 + used
    return tuple(directives), None


def _full_name(name: str) -> str | None:
    """The option for a long name, or for an unambiguous beginning of one."""
    known = _FLAGS | _OPTIONAL | _VALUED
    if name not in known:
        candidates = {_ALIASES.get(option, option) for option in known if option.startswith(name)} if name else set()
        if len(candidates) != 1:
            return None
        name = candidates.pop()
    return _ALIASES.get(name, name)


def _long(word: _Word, following: _Word | None, component: int) -> tuple[list[Directive], int]:
    head, equals, value = word.text[2:].partition("=")
    name = _full_name(head)
    if equals:
        cut = word.places[2 + len(head)]
        place, names = Span(cut + 1, word.span.end), Span(word.span.start, cut)
        return [Directive(name or head, value, word.span, names, place, word.line, name is not None, component)], 0
    if name is not None:
        takes = name in _VALUED
    else:  # an option of a plugin
        takes = following is not None and following.line == word.line and not following.text.startswith("-")
    if takes and following is not None:
        span, known = Span(word.span.start, following.span.end), name is not None
        value_span = following.span
        return [Directive(name or head, following.text, span, word.span, value_span, word.line, known, component)], 1
    return [Directive(name or head, None, word.span, word.span, None, word.line, name is not None, component)], 0


def _short(word: _Word, following: _Word | None, component: int) -> tuple[list[Directive], int]:
    """`-N4`, `-N 4`, `-HQ`."""
    found: list[Directive] = []
    for index, letter in enumerate(word.text[1:], 1):
        name = _SHORT.get(letter)
        place = Span(word.places[index], word.places[index] + 1)
        if index == 1:
            place = Span(word.span.start, place.end)
        rest = word.text[index + 1 :]
        if name is None or name in _FLAGS or (name in _OPTIONAL and not rest):
            found.append(Directive(name or letter, None, place, place, None, word.line, name is not None, component))
            continue
        if rest:
            value = Span(word.places[index] + 1, word.span.end)
            found.append(Directive(name, rest, Span(place.start, value.end), place, value, word.line, True, component))
            return found, 0
        if following is None:
            found.append(Directive(name, None, place, place, None, word.line, True, component))
            return found, 0
        span = Span(place.start, following.span.end)
        found.append(Directive(name, following.text, span, place, following.span, word.line, True, component))
        return found, 1
    return found, 0
