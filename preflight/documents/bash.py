"""Parser of job scripts: directives, assignments and commands in their order, with positions. Nothing is run."""

from __future__ import annotations

import time
from functools import cache, cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.documents.directives import Directive, Ignored, read_directives
from preflight.documents.shell_reader import Assignment, ShellCommand, ShellReader, ShellStep, WrittenFile
from preflight.documents.shell_text import ShellText, put_together
from preflight.documents.shell_words import Words
from preflight.vocabulary.budgets import PARSING_SECONDS, SCRIPT_CHARACTERS, SCRIPT_PIPES
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Expr, Span

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree


MARK = "\ufeff"
"""A byte-order mark. A shell reads it as a part of the first word."""


def moved(span: Span, by: int) -> Span:
    """A span moved by some characters."""
    return Span(span.start + by, span.end + by)


def behind(one: Directive) -> Directive:
    """A directive moved by one character."""
    value = None if one.value_span is None else moved(one.value_span, 1)
    return replace(one, span=moved(one.span, 1), name_span=moved(one.name_span, 1), value_span=value)


class BashDocument(Struct, frozen=True, eq=False, dict=True):
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
    parser, stop = _parser(), time.process_time() + PARSING_SECONDS
    try:
        return parser.parse(
            lambda offset, _: data[offset : offset + 65536],
            progress_callback=lambda _, __: time.process_time() > stop,
        )
    except TypeError:  # tree-sitter before 0.25 has no such callback
        return parser.parse(data)
    except ValueError:
        parser.reset()
        raise DocumentError(f"it is {PARSING_SECONDS.over}", Span(0, 0)) from None


def parse_bash(source: Source) -> BashDocument:
    """Parses a bash script; text that bash would refuse is left out.

    A script with DOS line breaks is read as it runs once they are converted: no shell follows a line that ends with a
    backslash and a carriage return. Every character keeps its place.
    Raises DocumentError if the file is larger than sbatch accepts.
    """
    text = f" {source.text[1:]}" if source.text.startswith(MARK) else source.text  # the first line may be a comment
    text = text.replace("\\\r\n", " \\\n").replace("\r\n", "\n\n")
    return _parse(source, ShellText(source.path, text))


Syntax = tuple[str, "str | tuple[Syntax, ...]"]
"""A node of the syntax tree: its kind, and its text or its parts."""


def syntax(text: str) -> Syntax:
    """The syntax tree of a script without its comments, to compare two texts. Raises DocumentError, also for a script
    that the grammar does not read to its end."""
    data = text.replace("\r\n", " \n").encode("utf-8", "replace")
    root = _tree(data).root_node
    if root.has_error:
        raise DocumentError("bash would not read it to its end", Span(0, 0))
    return _syntax(root, data)


def _syntax(node: Node, data: bytes) -> Syntax:
    parts = [part for part in node.children if part.type not in ("comment", "\n")]
    if not parts:
        return node.type, "" if node.children else data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return node.type, tuple(_syntax(part, data) for part in parts)


def reparse(source: Source, expr: Expr) -> BashDocument:
    """Parses the string that `bash -c` or `eval` would run. Places point to the text of the string in the file.

    Parts of the string that are not constants stay expressions.
    """
    return _parse(source, put_together(source.path, expr))


def _parse(source: Source, text: ShellText) -> BashDocument:
    if len(text.text) > SCRIPT_CHARACTERS:
        raise DocumentError("it is larger than the 4 MiB that sbatch takes", Span(0, 0))
    # CRLF is reported, not parsed: a `\r` would end up in every last word
    if text.text.count("|") > SCRIPT_PIPES:
        raise DocumentError(f"it has more than {SCRIPT_PIPES:,} pipes", Span(0, 0))
    tree = _tree(text.text.replace("\r\n", " \n").encode("utf-8", "replace"))
    reader = ShellReader(Words(ShellText(text.path, text.text.replace("\r\n", " \n"), text.offsets, text.holes)))
    try:
        reader.statements(tree.root_node, (), False, 0)
        reader.finish()
    except RecursionError:
        raise DocumentError("it is nested too deeply", Span(0, 0)) from None
    return BashDocument(
        source, text, tuple(reader.assignments), tuple(reader.commands), tuple(reader.heredocs), tuple(reader.written)
    )
