"""Parser of job scripts: directives, assignments and commands in their order, with positions. Nothing is run."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from preflight.documents.directives import Directive, Ignored, read_directives
from preflight.documents.shell_reader import Assignment, ShellCommand, ShellReader, ShellStep, WrittenFile
from preflight.documents.shell_text import ShellText, put_together
from preflight.documents.shell_words import Words
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Expr, Span

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

MAX_CHARACTERS = 4 * 2**20
"""sbatch refuses larger scripts (max_script_size in slurm.conf(5))."""
MAX_PIPES = 5_000
"""The time of the grammar grows with the square of a pipeline's length, and it cannot be stopped. This many pipes take
about a second."""
MAX_SECONDS = 10.0
"""Parsing stops after this time. Real scripts of a thousand lines take a tenth of a second."""

MARK = "\ufeff"
"""A byte-order mark. A shell reads it as a part of the first word."""


def moved(span: Span, by: int) -> Span:
    """A span moved by some characters."""
    return Span(span.start + by, span.end + by)


def behind(one: Directive) -> Directive:
    """A directive moved by one character."""
    value = None if one.value_span is None else moved(one.value_span, 1)
    return replace(one, span=moved(one.span, 1), name_span=moved(one.name_span, 1), value_span=value)


@dataclass(frozen=True, eq=False)
class BashDocument:
    """A parsed script, or a parsed string that a shell would run. Places are always places in the file."""

    source: Source
    text: ShellText
    assignments: tuple[Assignment, ...] = ()
    commands: tuple[ShellCommand, ...] = ()
    heredocs: tuple[Span, ...] = ()
    written: tuple[WrittenFile, ...] = ()

    @property
    def steps(self) -> list[ShellStep]:
        """Assignments, commands and written files in the order of the text."""
        steps: list[ShellStep] = [*self.assignments, *self.commands, *self.written]
        return sorted(steps, key=lambda step: step.span.start)

    @cached_property
    def _directives(self) -> tuple[tuple[Directive, ...], tuple[Ignored, ...]]:
        text = self.source.text
        if not text.startswith(MARK):
            return read_directives(text, self.heredocs)
        # sbatch refuses such a script; these are its directives without the mark
        found, ignored = read_directives(text[1:], tuple(moved(span, -1) for span in self.heredocs))
        return tuple(behind(one) for one in found), tuple(replace(one, span=moved(one.span, 1)) for one in ignored)

    @property
    def directives(self) -> tuple[Directive, ...]:
        """Options of `#SBATCH` lines, as sbatch reads them."""
        return self._directives[0]

    @property
    def ignored_directives(self) -> tuple[Ignored, ...]:
        """Lines that look like directives but are not, each with the reason."""
        return self._directives[1]


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _tree(data: bytes) -> Tree:
    """The syntax tree. Raises DocumentError if parsing takes too long."""
    parser, stop = _parser(), time.monotonic() + MAX_SECONDS
    try:
        return parser.parse(
            lambda offset, _: data[offset : offset + 65536],
            progress_callback=lambda _, __: time.monotonic() > stop,
        )
    except TypeError:  # tree-sitter before 0.25 has no such callback
        return parser.parse(data)
    except ValueError:
        parser.reset()
        raise DocumentError(f"it cannot be parsed within {MAX_SECONDS:.0f} seconds", Span(0, 0)) from None


def parse_bash(source: Source) -> BashDocument:
    """Parses a bash script; text that bash would refuse is left out.

    Raises DocumentError if the file is larger than sbatch accepts.
    """
    text = f" {source.text[1:]}" if source.text.startswith(MARK) else source.text  # the first line may be a comment
    return _parse(source, ShellText(source.path, text))


def reparse(source: Source, expr: Expr) -> BashDocument:
    """Parses the string that `bash -c` or `eval` would run. Places point to the text of the string in the file.

    Parts of the string that are not constants stay expressions.
    """
    return _parse(source, put_together(source.path, expr))


def _parse(source: Source, text: ShellText) -> BashDocument:
    if len(text.text) > MAX_CHARACTERS:
        raise DocumentError("it is larger than the 4 MiB that sbatch takes", Span(0, 0))
    # CRLF is reported, not parsed: a `\r` would end up in every last word
    if text.text.count("|") > MAX_PIPES:
        raise DocumentError(f"it has more than {MAX_PIPES:,} pipes", Span(0, 0))
    tree = _tree(text.text.replace("\r\n", " \n").encode("utf-8", "replace"))
    reader = ShellReader(Words(ShellText(text.path, text.text.replace("\r\n", " \n"), text.offsets, text.holes)))
    reader.statements(tree.root_node, (), False, 0)
    reader.finish()
    return BashDocument(
        source, text, tuple(reader.assignments), tuple(reader.commands), tuple(reader.heredocs), tuple(reader.written)
    )
