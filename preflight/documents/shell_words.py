"""Shell words as expressions: quotes, parameter expansion, arithmetic; the commands of `$(...)` as they are written."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.documents.shell_text import ShellText
from preflight.vocabulary.budgets import SHELL_DEPTH
from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Ref, Span, unknown

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_PIPELINES = 8
"""`$(...)` within `$(...)`."""

_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution")
_ARITHMETIC = {
    "+": "+", "-": "-", "*": "*", "/": "//", "%": "%", "**": "**",
    "<": "<", ">": ">", "<=": "<=", ">=": ">=", "==": "==", "!=": "!=", "&&": "and", "||": "or",
}  # fmt: skip
_NAMES = ("variable_name", "special_variable_name", "subscript")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


class Piece(Struct, frozen=True):
    """A part of a word: literal `text`, or the value of `expr`. `quoted`: the shell does not split or glob it."""

    text: str
    origin: Origin
    expr: Expr | None = None
    quoted: bool = False
    start: int = 0
    """The offset of literal text in the file; -1 if the file has other characters there (escapes)."""


class ShellWord(Struct, frozen=True):
    """One word of a command."""

    pieces: tuple[Piece, ...]
    span: Span
    origin: Origin

    @property
    def literal(self) -> str | None:
        """The text of the word, None if something in it is expanded."""
        return None if any(piece.expr is not None for piece in self.pieces) else "".join(p.text for p in self.pieces)

    @property
    def splits(self) -> bool:
        """Whether the shell may split it into several words (or none): an unquoted expansion, or a whole array."""
        return any(p.expr is not None and (not p.quoted or _is_array(p.expr)) for p in self.pieces)

    @property
    def expr(self) -> Expr:
        """The value of the word. The place of a constant includes its quotes."""
        text = self.literal
        if text is not None:
            return Const(text, self.origin)
        return join(self.pieces, self.origin)

    def partition(self, separator: str = "=") -> tuple[str, Expr | None]:
        """The literal text up to the first separator, and the value behind it: `--bs="$X"`, `lr=0.1`.

        The value is None if the literal text at the start of the word has no separator.
        """
        head = ""
        for index, piece in enumerate(self.pieces):
            if piece.expr is not None:
                break
            before, found, rest = piece.text.partition(separator)
            if found:
                return head + before + found, self._rest(index, len(before) + 1, rest)
            head += piece.text
        return self.literal or "", None

    def _rest(self, index: int, cut: int, rest: str) -> Expr:
        piece, after = self.pieces[index], self.pieces[index + 1 :]
        if not rest and len(after) == 1 and after[0].expr is None:
            return Const(after[0].text, after[0].origin)  # `--bs="16"`: the quotes belong to the value
        if rest or not after:
            start, origin = -1, replace(piece.origin, editable=False)
            if piece.start >= 0:
                start = piece.start + cut
                origin = replace(piece.origin, span=Span(start, piece.start + len(piece.text)))
            after = (replace(piece, text=rest, start=start, origin=origin), *after)
        whole = Span(after[0].origin.span.start, self.span.end)
        return join(after, replace(self.origin, span=whole, editable=len(after) == 1 and after[0].origin.editable))


def _is_array(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "all"


def join(pieces: tuple[Piece, ...], origin: Origin) -> Expr:
    """The value of pieces in a row."""
    parts = tuple(p.expr if p.expr is not None else Const(p.text, p.origin) for p in pieces)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Const("", origin)
    return Op("concat", parts, origin)


def apply_defaults(expr: Expr, known: Container[str]) -> Expr:
    """Evaluates `${X:-d}` and `${X:+a}` (operators "default" and "alternative").

    `known` are the names that have a value: assigned in the script, or set by SLURM. All other names have their default
    in the script. A whole array (operator "all") becomes the array.
    """
    if not isinstance(expr, Op):
        return expr
    operands = tuple(apply_defaults(operand, known) for operand in expr.operands)
    if expr.operator == "all":
        return operands[0]
    if expr.operator not in ("default", "alternative"):
        return Op(expr.operator, operands, expr.origin)
    value, other = operands
    empty = Const("", expr.origin)
    if not isinstance(value, Ref) or value.name not in known:
        name = value.name if isinstance(value, Ref) else ""
        return marked_default(other, name) if expr.operator == "default" else empty
    filled = Op("!=", (value, empty), expr.origin)
    chosen = (value, other) if expr.operator == "default" else (other, empty)
    return Op("if", (filled, *chosen), expr.origin)


def marked_default(expr: Expr, name: str) -> Expr:
    """The default of a variable, whose places say that whoever starts the script may set the variable."""
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(marked_default(operand, name) for operand in expr.operands), expr.origin)
    if not isinstance(expr, Const) or expr.origin is None or not name:
        return expr
    return Const(expr.value, replace(expr.origin, unless=name))


_CUT = regex(r"\$\{\w+(?:(##?)\*([=:/,._-])|%%([=:/,._-])\*|#([\w./:=,-]+))\}")
"""`${arg#*=}`, `${arg##*/}`, `${arg%%=*}` and `${arg#--bs=}`."""


def _without_edge(source: str, value: Expr, origin: Origin) -> Expr | None:
    """A value without what stands before or behind a sign, or without a plain text at its start; None for others."""
    found = _CUT.fullmatch(source)
    if found is None:
        return None
    text = Op("str", (value,), origin)
    once = () if found[1] == "##" else (Const(1),)
    parts = Op("split", (text, Const(found[2] or found[3] or found[4]), *once), origin)
    cut = Op("get", (parts, Const(0 if found[3] else -1)), origin)
    return Op("if", (Op("startswith", (text, Const(found[4]))), cut, value), origin) if found[4] else cut


class Words:
    """Turns the words of one parsed text into expressions."""

    def __init__(self, text: ShellText) -> None:
        self.text = text
        self._ascii = text.text.isascii()
        self.assigned: list[tuple[str, Expr]] = []
        """The variables that `${X:=d}` sets, in their order."""
        self._depth = 0
        """Expansions around the current one; a word in `${X:-word}` has expansions of its own."""
        self._nested = 0
        """Pipelines within pipelines that are being read."""

    def bounds(self, node: Node) -> tuple[int, int]:
        """First character and end of a node, without white space and line continuations at its start."""
        start, end, text = node.start_byte, node.end_byte, self.text.text
        if not self._ascii:
            start, end = self.text.char(start), self.text.char(end)
        while start < end and (text[start] in " \t\r\n" or text.startswith("\\\n", start)):
            start += 1
        return start, end

    def span(self, node: Node) -> Span:
        return self.text.span(*self.bounds(node))

    def source(self, node: Node) -> str:
        start, end = self.bounds(node)
        return self.text.text[start:end]

    def word(self, node: Node) -> ShellWord:
        """The word of a node (bare, quoted, expanded, or several of these in a row)."""
        start, end = self.bounds(node)
        pieces = tuple(self.pieces(node))
        plain = all(piece.expr is None for piece in pieces)
        return ShellWord(pieces, self.text.span(start, end), self.text.origin(start, end, plain))

    def pieces(self, node: Node) -> Iterator[Piece]:
        kind = node.type
        if kind in ("concatenation", "command_name", "translated_string"):
            for child in node.named_children:
                yield from self.pieces(child)
        elif kind == "string":
            yield from self._string(node)
        elif kind in _EXPANSIONS:
            yield Piece("", self._origin(node, False), self.expansion(node))
        elif kind == "raw_string":
            start, end = self.bounds(node)
            text, exact = self.text.text[start + 1 : end - 1], self.text.exact(start, end)
            yield Piece(text, self._origin(node), None, True, self.text.span(start + 1, end).start if exact else -1)
        elif kind == "ansi_c_string":
            body = self.source(node)[2:-1]
            text = re.sub(r"\\(.)", lambda m: _ANSI.get(m[1], m[0]), body, flags=re.S)
            yield Piece(text, self._origin(node), None, True, -1)
        else:
            raw = self.source(node)
            start, end = self.bounds(node)
            text = re.sub(r"\\(\n|.)", lambda m: "" if m[1] == "\n" else m[1], raw, flags=re.S)
            exact = text == raw and self.text.exact(start, end)
            yield Piece(text, self._origin(node), None, False, self.text.span(start, end).start if exact else -1)

    def _string(self, node: Node) -> Iterator[Piece]:
        """A double-quoted string. Its literals are the text between the expansions, because the grammar drops white
        space."""
        start, end = self.bounds(node)
        inside = [child for child in node.named_children if child.type in _EXPANSIONS]
        if not inside:
            raw = self.text.text[start + 1 : end - 1]
            text = _unescape(raw)
            exact = text == raw and self.text.exact(start, end)
            yield Piece(text, self._origin(node), None, True, self.text.span(start + 1, end).start if exact else -1)
            return
        at = start + 1
        for child in inside:
            first, last = self.bounds(child)
            yield from self._literal(at, first)
            yield Piece("", self._origin(child, False), self.expansion(child), True)
            at = last
        yield from self._literal(at, end - 1)

    def _literal(self, start: int, end: int) -> Iterator[Piece]:
        if start < end:
            raw = self.text.text[start:end]
            text = _unescape(raw)
            exact = text == raw and self.text.exact(start, end)
            origin = self.text.origin(start, end, exact)
            yield Piece(text, origin, None, True, origin.span.start if exact else -1)

    def _origin(self, node: Node, editable: bool = True) -> Origin:
        return self.text.origin(*self.bounds(node), editable)

    def value(self, node: Node) -> Expr:
        """The value of a word node."""
        return self.word(node).expr

    # --- expansions ---------------------------------------------------------------------------------------------------

    def expansion(self, node: Node, depth: int = 0) -> Expr:
        origin = self._origin(node, False)
        if depth > SHELL_DEPTH or self._depth > SHELL_DEPTH:
            return unknown(f"it is {SHELL_DEPTH.over}", origin, Cause.budget)
        self._depth += 1
        try:
            return self._expansion(node, origin, depth)
        finally:
            self._depth -= 1

    def _expansion(self, node: Node, origin: Origin, depth: int) -> Expr:
        if node.type == "simple_expansion":
            name = self.source(node)[1:]
            return self._ref(name, origin)
        if node.type == "arithmetic_expansion":
            inner = node.named_children
            return self.arithmetic(inner[0], depth + 1) if len(inner) == 1 else unknown("arithmetic", origin)
        if node.type == "expansion":
            return self._parameter(node, origin, depth)
        return self._printed(node, depth + 1) or self._output(node, origin)

    # --- output of commands -------------------------------------------------------------------------------------------

    def _output(self, node: Node, origin: Origin) -> Expr:
        """`$(...)` as `Op("output", stages)`, see `stages`; unknown if it is more than one pipeline."""
        inner = [child for child in node.named_children if child.type != "comment"]
        stages = self.stages(inner) if node.type == "command_substitution" and len(inner) == 1 else None
        if stages is None:
            return unknown("it is the output of a command", origin, Cause.run_time)
        return Op("output", stages, origin)

    def stages(self, nodes: Sequence[Node]) -> tuple[Expr, ...] | None:
        """The commands of a pipeline, in their order; None if one of them is no simple command.

        `Op("command", words)` is a command, `Op("file", (name,))` the file and `Op("text", (text,))` the text that the
        next command reads.
        """
        self._nested += 1
        found: list[Expr] | None = []
        for node in nodes:
            stage = self._stage(node) if self._nested <= MAX_PIPELINES else None
            found = None if found is None or stage is None else [*found, *stage]
        self._nested -= 1
        return None if found is None else tuple(found)

    def _stage(self, node: Node) -> tuple[Expr, ...] | None:
        if node.type == "pipeline":
            pipes = {child.type for child in node.children if not child.is_named}
            return self.stages(node.named_children) if pipes == {"|"} else None
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            inner = self._stage(body) if body is not None else None
            given = [self.given(child) for child in node.named_children if child != body]
            return None if inner is None else (*(one for one in given if one is not None), *inner)
        if node.type == "file_redirect":  # `$(< file)`
            given_file = self.given(node)
            return None if given_file is None else (given_file, Op("command", (Const("cat"),), self._origin(node)))
        if node.type != "command" or any(child.type == "variable_assignment" for child in node.named_children):
            return None
        words = [child for child in node.named_children if not child.type.endswith("redirect")]
        given = [self.given(child) for child in node.named_children if child.type.endswith("redirect")]
        command = Op("command", tuple(self.item(self.word(child)) for child in words), self._origin(node, False))
        return (*(one for one in given if one is not None), command)

    def given(self, node: Node) -> Expr | None:
        """The standard input that a redirection gives: `< file`, `<<< text` or `<<EOF`; None for all others."""
        last = node.named_children[-1] if node.named_children else None
        if node.type == "herestring_redirect" and last is not None:
            return Op("text", (self.value(last),), self._origin(node, False))
        if last is not None and last.type == "process_substitution" and node.children[0].type == "<":
            stages = self.stages(last.named_children)
            return None if stages is None else Op("output", stages, self._origin(node, False))
        if node.type == "file_redirect" and node.children[0].type == "<" and last is not None:
            return Op("file", (self.value(last),), self._origin(last, False))
        if node.type == "heredoc_redirect":
            return Op("text", (self.heredoc(node),), self._origin(node, False))
        return None

    def heredoc(self, node: Node) -> Expr:
        """The text of `<<EOF`. It is not expanded if a part of the delimiter is quoted."""
        parts = {child.type: child for child in node.named_children}
        start, body = parts.get("heredoc_start"), parts.get("heredoc_body")
        if start is None or body is None or node.children[0].type == "<<-":
            return unknown("it is a text of the script that is not followed", self._origin(node, False))
        at, end = self.text.char(body.start_byte), self.text.char(body.end_byte)
        at = self.text.text.rfind("\n", 0, at) + 1
        if self.source(start)[:1] in "\"'\\":
            return Const(self.text.text[at:end], self.text.origin(at, end))
        pieces: list[Piece] = []
        for child in (child for child in body.named_children if child.type in _EXPANSIONS):
            first, last = self.bounds(child)
            pieces += [*self._literal(at, first), Piece("", self._origin(child, False), self.expansion(child), True)]
            at = last
        return join((*pieces, *self._literal(at, end)), self._origin(body, False))

    @staticmethod
    def item(word: ShellWord) -> Expr:
        """A word in a list: `Op("words", ...)` if the shell splits it."""
        return Op("words", (word.expr,), word.origin) if word.splits else word.expr

    def _printed(self, node: Node, depth: int) -> Expr | None:
        """The output of the usual commands that find a directory (`/` is the project's root) or a program; None for all
        others."""
        inner = [child for child in node.named_children if child.type != "comment"]
        if node.type != "command_substitution" or len(inner) != 1 or depth > SHELL_DEPTH:
            return None
        found, origin = inner[0], self._origin(node, False)
        if found.type == "list" and self.source(found.named_children[-1]).split()[:1] == ["pwd"]:
            found = found.named_children[0]
            found = found.child_by_field_name("body") or found if found.type == "redirected_statement" else found
            return self._arguments(found, ("cd",), depth)
        if self.source(found) == "git rev-parse --show-toplevel":
            return Const("/", origin)
        if self.source(found) in ("pwd", "pwd -P"):
            return Ref("PWD", origin)
        directory = self._arguments(found, ("dirname",), depth)
        if directory is not None:
            return Op("concat", (directory, Const("/..")), origin)
        place = self._arguments(found, ("realpath", "readlink"), depth)
        return place if place is not None else self._program(found, depth)

    def _program(self, node: Node, depth: int) -> Expr | None:
        """The name of the program that `which NAME`, `command -v NAME` or `type -p NAME` finds."""
        node = (node.child_by_field_name("body") or node) if node.type == "redirected_statement" else node
        asks = re.match(r"which\s|command\s+-v\s|type\s+-[pP]\s", self.source(node))
        return self._arguments(node, ("which", "command", "type"), depth) if asks else None

    def _arguments(self, node: Node, names: tuple[str, ...], depth: int) -> Expr | None:
        """The only argument of a command with one of these names, without options; None if there are several."""
        words = node.named_children if node.type == "command" else []
        rest = [child for child in words[1:] if not self.source(child).startswith("-")]
        if not words or self.source(words[0]) not in names or len(rest) != 1:
            return None
        return self.value(rest[0])

    def _ref(self, name: str, origin: Origin) -> Expr:
        if name in self.text.holes:
            return self.text.holes[name]
        if name in ("@", "*"):
            return Op("all", (Ref(name, origin),), origin)
        return Ref(name, origin)

    def _parameter(self, node: Node, origin: Origin, depth: int) -> Expr:
        """`${...}`: name, element, length, default, alternative; other operators are unknown."""
        match = re.match(r"\$\{(#?)(\w+|[@*])(?:\[)?", self.source(node))
        children = node.children[1:-1]
        length = bool(children) and children[0].type == "#"
        children = children[1:] if length else children
        if match is None or not children or children[0].type not in _NAMES:
            return unknown(f"{self.source(node)[:40]} is not followed", origin)
        head, rest = children[0], children[1:]
        value = self._element(head, origin, depth) if head.type == "subscript" else self._ref(self.source(head), origin)
        if length:
            inner = value.operands[0] if isinstance(value, Op) and value.operator == "all" else value
            return Op("len", (inner,), origin)
        if not rest:
            return value
        operator, words = rest[0].type, rest[1:]
        if operator in (":-", "-", ":=", "=", ":+", "+"):
            other = self._default_word(words, rest[0])
            chosen = Op("alternative" if "+" in operator else "default", (value, other), origin)
            if "=" in operator and isinstance(value, Ref):
                self.assigned.append((value.name, chosen))
            return chosen
        if operator in (":?", "?"):
            return value
        if operator in ("%", "%%") and self.source(node).endswith("%/*}"):  # the directory of a path
            return Op("concat", (value, Const("/..")), origin)
        if (cut := _without_edge(self.source(node), value, origin)) is not None:
            return cut
        return unknown(f"{self.source(node)[:40]} is not followed", origin)

    def _default_word(self, words: list[Node], operator: Node) -> Expr:
        """The value behind `:-`: one word, several words in a row, or nothing."""
        end = self.text.char(operator.end_byte)
        if not words:
            return Const("", self.text.origin(end, end, False))
        if len(words) == 1:
            return self.value(words[0])
        pieces = tuple(piece for word in words for piece in self.pieces(word))
        return join(pieces, self.text.origin(end, self.bounds(words[-1])[1], False))

    def _element(self, node: Node, origin: Origin, depth: int) -> Expr:
        name, index = self.source(node.named_children[0]), node.named_children[-1]
        array = self._ref(name, origin)
        if self.source(index) in ("@", "*"):
            return Op("all", (array,), origin)
        return Op("get", (array, self.arithmetic(index, depth + 1)), origin)

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def arithmetic(self, node: Node, depth: int = 0) -> Expr:
        """An arithmetic expression; names are variables, division rounds."""
        origin, kind = self._origin(node), node.type
        if depth > SHELL_DEPTH:
            return unknown(f"it is {SHELL_DEPTH.over}", origin, Cause.budget)
        if kind in ("number", "word", "variable_name", "string", "string_content"):
            return self._atom(self.source(node).strip('"'), origin)
        if kind == "arithmetic_expansion" or kind == "parenthesized_expression":
            inner = node.named_children
            return self.arithmetic(inner[0], depth + 1) if len(inner) == 1 else unknown("arithmetic", origin)
        if kind in ("simple_expansion", "expansion", "subscript"):
            value = self._element(node, origin, depth) if kind == "subscript" else self.expansion(node, depth + 1)
            return Op("int", (value,), origin)
        operands = [self.arithmetic(child, depth + 1) for child in node.named_children]
        operator = next((child.type for child in node.children if not child.is_named), "")
        if kind == "binary_expression" and len(operands) == 2 and operator in _ARITHMETIC:
            return Op(_ARITHMETIC[operator], tuple(operands), origin)
        if kind == "unary_expression" and len(operands) == 1 and operator in ("-", "+", "!"):
            return operands[0] if operator == "+" else Op("neg" if operator == "-" else "not", tuple(operands), origin)
        if kind == "ternary_expression" and len(operands) == 3:
            return Op("if", tuple(operands), origin)
        return unknown(f"{self.source(node)[:40]} is not followed", origin)

    def _atom(self, text: str, origin: Origin) -> Expr:
        if re.fullmatch(r"[A-Za-z_]\w*", text):
            return Op("int", (self._ref(text, origin),), origin)
        try:
            octal = len(text) > 1 and text.startswith("0") and text.isdecimal()
            return Const(int(text, 8 if octal else 0), origin)
        except ValueError:
            return unknown(f"{text[:40]} is not a number", origin, Cause.invalid)


def _unescape(raw: str) -> str:
    """Removes escapes from double-quoted text: a backslash before `$`, a backquote, `"`, a backslash or a newline."""
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], raw)
