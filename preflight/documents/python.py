"""Parser of Python with positions in code points, and the edit that adds a keyword to a call."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from msgspec import Struct

from preflight.documents.layout import line_end, newline_of
from preflight.vocabulary.budgets import PROGRAM_CHARACTERS, SYNTAX_DEPTH
from preflight.vocabulary.python_grammar import not_this_python, parse, parse_module
from preflight.vocabulary.text import CannotEdit, DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Origin, Span

_NEWLINE = re.compile(r"\r\n|\r|\n")


class PythonDocument(Struct, frozen=True, eq=False, dict=True):
    """A parsed Python file. Nothing in it is run."""

    source: Source
    tree: ast.Module

    @cached_property
    def _starts(self) -> list[int]:
        """Offsets of the lines as Python counts them; a lone carriage return ends a line too."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.source.text))]

    @cached_property
    def _formatted(self) -> dict[int, ast.JoinedStr]:
        """Nodes inside f-strings -> the f-string. Before Python 3.12 the positions of such nodes are wrong."""
        found: dict[int, ast.JoinedStr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr) and id(node) not in found:
                found.update((id(inner), node) for inner in ast.walk(node) if inner is not node)
        return found

    def _offset(self, line: int, column: int) -> int:
        """An offset from ast's line (from 1) and column (in bytes of UTF-8)."""
        start = self._starts[min(line, len(self._starts)) - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.source.text)
        text = self.source.text[start:end]
        if text.isascii():
            return start + column
        return start + len(text.encode("utf-8", "replace")[:column].decode("utf-8", "ignore"))

    def span(self, node: ast.AST) -> Span:
        """The place of a node. A node inside an f-string has the place of the f-string, a module has the whole file."""
        node = self._formatted.get(id(node), node)
        line = getattr(node, "lineno", None)
        if line is None:
            return Span(0, len(self.source.text))
        end_line, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", 0)
        return Span(self._offset(line, getattr(node, "col_offset", 0)), self._offset(end_line, end_column))

    def text(self, node: ast.AST) -> str:
        """The node's text in the source."""
        span = self.span(node)
        return self.source.text[span.start : span.end]

    def origin(self, node: ast.AST, editable: bool = True) -> Origin:
        """The origin of a node. It is not editable inside an f-string."""
        return Origin(self.source.path, self.span(node), None, (), editable and id(node) not in self._formatted)

    def insert_keyword(self, call: ast.Call, name: str, value_text: str) -> Edit:
        """The edit that adds a keyword argument to a call, in the layout of the last argument. Raises CannotEdit if the
        call has it already, may have it in `**kwargs`, or is inside an f-string."""
        if id(call) in self._formatted:
            raise CannotEdit("it stands inside an f-string")
        if any(keyword.arg == name for keyword in call.keywords):
            raise CannotEdit(f"{name} is given already")
        if any(keyword.arg is None for keyword in call.keywords):
            raise CannotEdit(f"{name} may be given already, by the ** argument")
        if any(isinstance(argument, ast.GeneratorExp) for argument in call.args):
            raise CannotEdit("the call's only argument is a generator")
        edit = self._keyword_edit(call, f"{name}={value_text}")
        call.keywords.append(ast.keyword(name, self._reread(value_text, "eval")))
        try:
            expected = ast.dump(self.tree)
        finally:
            call.keywords.pop()
        self._prove(edit, expected)
        return edit

    def _keyword_edit(self, call: ast.Call, keyword: str) -> Edit:
        text, path = self.source.text, self.source.path
        close = self.span(call).end - 1
        arguments = sorted([*call.args, *call.keywords], key=lambda node: self.span(node).start)
        if not arguments:
            return Edit(path, Span(close, close), keyword)
        start, end = self.span(arguments[-1]).start, self.span(arguments[-1]).end
        end, comma = _argument_end(text, end, close)
        before = text[text.rfind("\n", 0, start) + 1 : start]
        if before.strip():  # it shares its line: so does the new one
            return Edit(path, Span(end, end), f", {keyword}") if comma is None else _behind(path, comma, f" {keyword}")
        newline = newline_of(text, start) + before
        after = end if comma is None else comma + 1
        stop = line_end(text, after)
        rest = text[after:stop].strip()
        if stop > close or (rest and not rest.startswith("#")):
            return Edit(path, Span(end, end), f",{newline}{keyword}")
        if comma is None:
            return Edit(path, Span(end, stop), f",{text[end:stop]}{newline}{keyword}")
        return Edit(path, Span(stop, stop), f"{newline}{keyword},")

    def _reread(self, text: str, mode: str) -> ast.expr:
        try:
            return parse(text, mode).body  # type: ignore[attr-defined, no-any-return]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise CannotEdit(f"{text[:60]!r} is not an expression") from None

    def _prove(self, edit: Edit, expected: str) -> None:
        try:
            after = ast.dump(parse(splice(self.source.text, [edit])))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise CannotEdit("the edited file would not be Python") from None
        if after != expected:
            raise CannotEdit("the edited file would say something else")


def _behind(path: str, comma: int, text: str) -> Edit:
    return Edit(path, Span(comma + 1, comma + 1), text)


def _argument_end(text: str, at: int, close: int) -> tuple[int, int | None]:
    """Where the last argument ends, with its closing parentheses, and where its trailing comma is."""
    end, comma = at, None
    while at < close:
        char = text[at]
        if char == "#":
            at = line_end(text, at)
            continue
        if char == ")":
            end, comma = at + 1, None
        elif char == ",":
            comma = at
        at += 1
    return end, comma


def parse_python(source: Source) -> PythonDocument:
    """Parses a Python file with the newest grammar. Raises DocumentError with the place."""
    text = source.text
    if len(text) > PROGRAM_CHARACTERS:
        raise DocumentError(f"it is {PROGRAM_CHARACTERS.over}", Span(0, 0))
    if "\0" in text:
        at = text.index("\0")
        raise DocumentError("it holds a null byte", Span(at, at + 1))
    try:
        tree = parse_module(text)
    except SyntaxError as error:
        other = not_this_python(text, error)
        said = other or error.msg or "it is not Python"
        raise DocumentError(said, _error_span(text, error), mistake=other is None) from None
    except ValueError as error:  # lone surrogates
        raise DocumentError(str(error), Span(0, min(1, len(text)))) from None
    except (RecursionError, MemoryError):
        raise DocumentError("it is nested too deeply", Span(0, 0)) from None
    document = PythonDocument(source, tree)
    deep = _too_deep(tree)
    if deep is not None:
        start = document.span(deep).start
        raise DocumentError(f"it is nested more than {SYNTAX_DEPTH} levels deep", Span(start, start))
    return document


def _error_span(text: str, error: SyntaxError) -> Span:
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
    line = min(max(error.lineno or 1, 1), len(starts))
    start = min(starts[line - 1] + max((error.offset or 1) - 1, 0), len(text))
    return Span(start, min(start + 1, len(text)))


def _too_deep(tree: ast.Module) -> ast.AST | None:
    level: list[ast.AST] = [tree]
    for _ in range(SYNTAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    return level[0]
