"""What another script says of a job that it submits: the options of its `sbatch`, and a job script in its own text."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.dialects.shell.submit import shown, unread
from preflight.dialects.slurm.request import GivenOption
from preflight.dialects.slurm.schema import MEMORY_OPTIONS, REQUEST_FIELDS
from preflight.documents.directives import Directive, option_at, read_directives
from preflight.documents.shell_text import ShellText
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Cause, Origin, Span, Unknown

_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_WITHOUT_DIRECTIVE = {
    "nodes": (), "ntasks-per-node": ("ntasks", "tasks-per-node"), "cpus-per-task": ("cpus-per-gpu",),
    "mem": MEMORY_OPTIONS, "gres": _GPUS, "partition": (),
}  # fmt: skip
"""Options whose defaults decide what a job gets -> options that say the same."""
_NOT_OPTIONS = ("wrap", "export", "parsable")


def given_options(words: tuple[Word, ...], path: str, directives: tuple[Directive, ...]) -> Iterator[GivenOption]:
    """The options in the words of an `sbatch`. `path` has its line.

    A word that is not known may be any option, so it replaces each directive by a value that is not known, and the
    defaults of what no directive states.
    """
    texts = [shown(word) for word in words]
    at = 0
    while at < len(words):
        if not texts[at].startswith("-"):
            yield from _any_option(words[at], path, directives)
            at += 1
            continue
        found, used = option_at(texts, at)
        word = words[at + used]
        for one in found:
            if one.name not in _NOT_OPTIONS:
                yield GivenOption(path, replace(one, unread=unread(word)), _place(words[at + used], path))
        at += 1 + used


def _place(word: Word, path: str) -> Origin:
    """Where the value of an option is written. No fix writes it: other jobs may take it from there too."""
    origin = word.value.origin if word.value is not None and word.value.origin is not None else word.origin
    return Origin(path, Span(0, 0), editable=False) if origin is None else replace(origin, editable=False)


def _any_option(word: Word, path: str, directives: tuple[Directive, ...]) -> Iterator[GivenOption]:
    why = unread(word)
    stated = {one.name for one in directives}
    for name, others in _WITHOUT_DIRECTIVE.items():
        if not stated & {name, *others}:
            nowhere = Span(0, 0)
            yield GivenOption(path, Directive(name, None, nowhere, nowhere, None, 1, unread=why), _place(word, path))
    for name in dict.fromkeys(one.name for one in directives if one.name in REQUEST_FIELDS):
        one = next(one for one in reversed(directives) if one.name == name)
        yield GivenOption(path, replace(one, component=0, unread=why), _place(word, path))


def directives_in(text: ShellText) -> tuple[Directive, ...]:
    """The directives of a job script that stands in another script, with their places there."""
    return tuple(_placed(one, text) for one in read_directives(text.text)[0])


def _placed(one: Directive, text: ShellText) -> Directive:
    def at(span: Span) -> Span:
        return text.span(span.start, span.end)

    value = None if one.value_span is None else at(one.value_span)
    hole = next((expr for name, expr in text.holes.items() if f"${{{name}}}" in (one.value or "")), None)
    why = None if hole is None else unread(Word("", hole))
    if hole is not None and why is None:
        why = Unknown("the script around the job decides it", Cause.run_time)
    return replace(one, span=at(one.span), name_span=at(one.name_span), value_span=value, unread=why)
