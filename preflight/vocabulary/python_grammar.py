"""Python's newest grammar under every running Python.

What an older parser refuses is first written in older words of the same length, so that every place stays exact:

- An expression of an f-string with a quote, a backslash or a comment (Python 3.12) becomes a name. The expression is
  parsed alone, and its tree takes the place of the name.
- Type parameters (`def f[T](x)`, `class C[T]`) and the star of `except*` become blanks. Nothing that a job needs is
  lost with them.
- `type X = int` becomes an assignment to an attribute.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator

from preflight.vocabulary.caches import regex

_TOKEN = regex(
    r"""(?P<comment>\#[^\r\n]*)|(?<!\w)(?P<prefix>[A-Za-z]{0,2})(?P<quote>\'\'\'|\"\"\"|'|")|\w+|\\.|.""", re.S
)
_FORMATTED = regex(r"""(?<!\w)(?:[fF][rR]?|[rR][fF])['"]""")
_HARD = regex(r"""['"\\#\r\n]""")
"""What the expressions of an f-string could not have before Python 3.12, or only with some quotes."""
_PARAMETERS = regex(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+[ \t]*(\[)", re.M)
_ALIAS = regex(r"^[ \t]*type([ \t]+)\w+[ \t]*(\[|=(?!=))", re.M)
_EXCEPT_STAR = regex(r"^[ \t]*except[ \t]*(\*)", re.M)
_OPEN, _CLOSE = "([{", ")]}"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_PYTHON_2 = regex(
    r"""^\s*(?:print\s+[^\s(=.,\[:]|print\s*>>|exec\s+["'\w]|raise\s+[\w.]+\s*,)|<>|(?<![\w.])\d+[lL]\b"""
    r"""|(?<![\w.])0\d+\b|`|(?<!\w)[uU][rR]['"]"""
)
_TWO_EXCEPTIONS = regex(r"^\s*except\s+[\w.]+\s*,")
"""`except A, b:` names an exception in Python 2, and is a second type in Python 3.14."""
_TEMPLATE_STRING = regex(r"""(?<!\w)(?:[tT][rR]?|[rR][tT])['"]""")
_TEMPLATE = regex(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}")


class _NotRead(Exception):
    """The text is not what the scanner expects, or its older words would not have the same length."""


def parse(text: str, mode: str = "exec") -> ast.AST:
    """The tree of a text in Python's newest grammar; nothing is run. Raises what `ast.parse` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in a user's string is not ours to report
        try:
            return ast.parse(text, mode=mode)
        except SyntaxError:
            older = _in_older_words(text)
            if older is None:
                raise
            try:
                tree = ast.parse(older[0], mode=mode)
            except SyntaxError:
                tree = None
            if tree is None:
                raise
            return _Expressions(older[1]).visit(tree) if older[1] else tree


def parse_module(text: str) -> ast.Module:
    """The tree of a file. Raises what `ast.parse` raises."""
    tree = parse(text)
    assert isinstance(tree, ast.Module)
    return tree


def not_this_python(text: str, error: SyntaxError) -> str | None:
    """Why a text that cannot be parsed is no mistake of its author, for the user: another Python, a template."""
    line = (_lines(text)[(error.lineno or 1) - 1 :] or [""])[0]
    if isinstance(error, TabError) or _PYTHON_2.search(line):
        return "it is written for Python 2"
    if _TWO_EXCEPTIONS.search(line):
        return "it is written for Python 2, or with syntax newer than Python 3.13"
    if _TEMPLATE.search(line):
        return "it is a template"
    if _TEMPLATE_STRING.search(line) or _long_field(text):
        running = ".".join(map(str, sys.version_info[:2]))
        return f"it has syntax that is newer than Python {running}, which preflight runs on"
    return None


def _lines(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


def _long_field(text: str) -> bool:
    """Whether an f-string between single quotes goes on in the next line, inside an expression."""
    try:
        return any(_scan(text).long)
    except (_NotRead, RecursionError):
        return False


# --- older words -----------------------------------------------------------------------------------------------------


def _in_older_words(text: str) -> tuple[str, dict[str, tuple[str, ast.expr]]] | None:
    """The text in older words of the same length, and the names in it -> the expressions that they stand for.

    None if there is nothing to say in other words, or if that is not possible.
    """
    newer = _FORMATTED.search(text) or _PARAMETERS.search(text) or _ALIAS.search(text) or _EXCEPT_STAR.search(text)
    if newer is None:
        return None
    try:
        scan = _scan(text)
        edits = [*_blanks(scan.code())]
        names: dict[str, tuple[str, ast.expr]] = {}
        for start, end in scan.fields:
            inner = text[start:end]
            if _HARD.search(inner):
                name, words = _named(inner, text, len(names))
                names[name] = (inner, _expression(inner))
                edits.append((start, end, words))
    except (_NotRead, SyntaxError, ValueError, RecursionError):
        return None
    if not edits:
        return None
    parts, at = [], 0
    for start, end, words in sorted(edits):
        parts += [text[at:start], words]
        at = end
    return "".join([*parts, text[at:]]), names


def _blanks(code: str) -> Iterator[tuple[int, int, str]]:
    """Edits outside strings: type parameters, type aliases, `except*`."""
    for found in _PARAMETERS.finditer(code):
        yield _blanked(code, found.start(1))
    for found in _ALIAS.finditer(code):
        yield found.start(1), found.start(1) + 1, "."
        if found[2] == "[":
            yield _blanked(code, found.start(2))
    for found in _EXCEPT_STAR.finditer(code):
        yield found.start(1), found.end(1), " "


def _blanked(code: str, opened: int) -> tuple[int, int, str]:
    """Blanks for what stands between brackets; a line that ends in them goes on behind a backslash."""
    depth = 0
    for at in range(opened, len(code)):
        depth += (code[at] in _OPEN) - (code[at] in _CLOSE)
        if depth == 0:
            inner = code[opened : at + 1]
            if not inner.isascii() or "\r" in inner:
                raise _NotRead
            return opened, at + 1, re.sub(r"[^\n]\n", "\\\\\n", re.sub(r"[^\n]", " ", inner))
    raise _NotRead


def _named(inner: str, text: str, number: int) -> tuple[str, str]:
    """A name that is not in the text, and the words with it that take the place of `inner`: as many bytes a line."""
    lines = [len(line.encode("utf-8", "replace")) for line in inner.split("\n")]
    place = max(range(len(lines)), key=lambda index: lines[index])
    for count in range(number, number + 36**2):
        digits = _DIGITS[count % 36] if count < 36 else _DIGITS[count // 36 % 36] + _DIGITS[count % 36]
        name = f"_{digits}".ljust(min(lines[place], 12), "_")
        if len(name) > lines[place]:
            raise _NotRead
        if name not in text:
            words = [" " * length for length in lines]
            words[place] = name.ljust(lines[place])
            return name, "\n".join(words)
    raise _NotRead


def _expression(inner: str) -> ast.expr:
    tree = parse(f"({inner}\n)", "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


class _Expressions(ast.NodeTransformer):
    """Puts expressions in the place of the names that stand for them."""

    def __init__(self, names: dict[str, tuple[str, ast.expr]]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        _, found = self.names[node.id]
        for inner in ast.walk(found):
            if isinstance(inner, (ast.expr, ast.keyword, ast.arg)):
                ast.copy_location(inner, node)
        return found

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        """`f"{x["a"]=}"` repeats the expression as text."""
        for value in node.values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                for name, (inner, _) in self.names.items():
                    value.value = value.value.replace(name, inner)
        self.generic_visit(node)
        return node


# --- strings and comments --------------------------------------------------------------------------------------------


class _Scan:
    """Where the strings and comments of a text are, and the expressions of its f-strings (not of those inside them)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.covered: list[tuple[int, int]] = []
        self.fields: list[tuple[int, int]] = []
        self.long: list[bool] = []

    def code(self) -> str:
        """The text with blanks (of as many characters) for strings and comments."""
        parts, at = [], 0
        for start, end in self.covered:
            parts += [self.text[at:start], re.sub(r"[^\r\n]", "0", self.text[start:end])]
            at = end
        return "".join([*parts, self.text[at:]])

    def whole(self) -> None:
        at = 0
        while (token := _TOKEN.match(self.text, at)) is not None:
            at = token.end()
            if token["comment"] is not None:
                self.covered.append(token.span())
            elif token["quote"] is not None:
                at = self._string(token, 0)
                self.covered.append((token.start(), at))

    def _string(self, token: re.Match[str], level: int) -> int:
        """The end of a string. `level`: how many f-strings it is inside."""
        prefix, quote = token["prefix"].lower(), token["quote"]
        if "f" in prefix:
            return self._literal(token.end(), quote, "r" in prefix, level, spec=False)
        at = token.end()
        while not self.text.startswith(quote, at):
            at += 2 if self.text.startswith("\\", at) else 1
            if at >= len(self.text) or (len(quote) == 1 and self.text[at - 1] == "\n" and self.text[at - 2] != "\\"):
                raise _NotRead
        return at + len(quote)

    def _literal(self, at: int, quote: str, raw: bool, level: int, spec: bool) -> int:
        """The end of the text of an f-string, behind its quote; of a format specification, before its `}`."""
        text = self.text
        while at < len(text):
            if text.startswith(quote, at):
                if spec:
                    raise _NotRead
                return at + len(quote)
            char = text[at]
            if spec and char == "}":
                return at
            if char == "\\":
                if not raw and text.startswith("\\N{", at):
                    at = text.index("}", at) + 1
                else:
                    at += 1 if text[at + 1 : at + 2] in ("{", "}") else 2
            elif text[at : at + 2] in ("{{", "}}") and not spec:
                at += 2
            elif char == "{":
                at = self._field(at + 1, quote, raw, level)
            elif char == "\n" and len(quote) == 1:
                raise _NotRead
            else:
                at += 1
        raise _NotRead

    def _field(self, start: int, quote: str, raw: bool, level: int) -> int:
        """The end of a replacement field, behind its `}`."""
        text, at, depth, end = self.text, start, 0, None
        while (token := _TOKEN.match(text, at)) is not None:
            at = token.end()
            if token["comment"] is not None:
                continue
            if token["quote"] is not None:
                at = self._string(token, level + 1)
                continue
            char = token[0]
            if depth == 0 and char in ("!", "=", "<", ">") and text.startswith("=", at):
                at += 1  # !=, ==, <=, >=
            elif depth == 0 and char in ("!", "=", ":", "}"):
                end = token.start() if end is None else end
                if char in (":", "}"):
                    break
            else:
                depth += (char in _OPEN) - (char in _CLOSE)
        if end is None:
            raise _NotRead
        inner = text[start:end]
        if level == 0:
            self.fields.append((start, end))
            self.long.append(len(quote) == 1 and "\n" in inner)
        if char == ":":
            at = self._literal(at, quote, raw, level, spec=True) + 1
        return at


def _scan(text: str) -> _Scan:
    """Raises _NotRead."""
    found = _Scan(text)
    try:
        found.whole()
    except (ValueError, IndexError):
        raise _NotRead from None
    return found
