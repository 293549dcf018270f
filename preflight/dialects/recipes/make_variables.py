"""The variables of a Makefile, and what make puts in their place.

Source: the GNU make manual 4.4, "The Two Flavors of Variables", "Setting Variables", "Automatic Variables".
Functions (`$(shell ...)`, `$(wildcard ...)`) and substitutions (`$(X:.c=.o)`) are unknown: nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.recipes.reader import joined
from preflight.vocabulary.budgets import RECIPE_DEPTH
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Ref, Span, unknown

_NAME = re.compile(r"[^\s:#=(){}$,]+")
_CONTINUED = re.compile(r"[ \t]*\\\r?\n[ \t]*")


class Piece(Struct, frozen=True):
    """A text of the file at its place."""

    text: str
    start: int

    def part(self, start: int, end: int | None = None) -> Piece:
        return Piece(self.text[start:end], self.start + start)


class Variable(Struct, frozen=True):
    """The value of a variable: pieces that are expanded where it is used, or (`:=`) an expression."""

    pieces: tuple[Piece, ...] = ()
    simple: Expr | None = None
    is_default: bool = False
    """Whether `?=` set it: the environment of make comes first."""


class Scope(Struct, frozen=True, eq=False):
    """The variables at one point. `automatic` are `@` and `<`, where they are known."""

    path: str
    variables: Mapping[str, Variable]
    automatic: Mapping[str, Expr] = field(default_factory=dict)
    includes: bool = False
    """Whether other files may set variables too."""
    depth: int = 0
    known: dict[tuple[str, int], list[Expr]] = field(default_factory=dict)
    """The parts of expanded variables, by name and depth. Without them, variables that double each other would be
    expanded a million times."""

    def of(self, name: str, origin: Origin) -> Expr:
        """The value of a variable. One that no line sets comes from the command line of make, or its environment."""
        if name in self.automatic:
            return self.automatic[name]
        variable = self.variables.get(name)
        if variable is None:
            if self.includes:
                return unknown(f"{name} may be set in a file that the Makefile includes", origin, Cause.not_read)
            return unknown(f"{name} is not set in the Makefile", origin, Cause.not_set)
        if variable.simple is not None:
            return variable.simple
        if self.depth >= RECIPE_DEPTH:
            return unknown(f"{name} is nested too deeply", origin, Cause.budget)
        value = joined(self._parts_of(name, variable) or [Const("")], origin)
        if variable.is_default and isinstance(value, Const) and not re.search(r"\s", str(value.value)):
            return Op("default", (Ref(name, origin), value), value.origin)
        return value

    def _parts_of(self, name: str, variable: Variable) -> list[Expr]:
        key = name, self.depth
        if key not in self.known:
            inner = replace(self, depth=self.depth + 1)
            self.known[key] = [part for piece in variable.pieces for part in inner.parts(piece)]
        return self.known[key]

    def expanded(self, piece: Piece) -> Expr:
        """A text with the values of its variables."""
        return joined(list(self.parts(piece)) or [Const("")], self._origin(piece.start, piece.start + len(piece.text)))

    def parts(self, piece: Piece) -> Iterator[Expr]:
        """The constants of a text, each at its place, and the values between them."""
        text, at = piece.text, 0
        while at < len(text):
            dollar = text.find("$", at)
            stop = len(text) if dollar < 0 else dollar
            if stop > at:
                yield Const(text[at:stop], self._origin(piece.start + at, piece.start + stop))
            if dollar < 0:
                return
            end = _end_of_reference(text, dollar)
            yield self._reference(text[dollar + 1 : end], self._origin(piece.start + dollar, piece.start + end))
            at = end

    def _reference(self, inside: str, origin: Origin) -> Expr:
        if inside in ("$", ""):  # `$$` is the `$` of the shell
            return Const("$", origin)
        name = inside[1:-1] if inside[0] in "({" else inside
        if _NAME.fullmatch(name):
            return self.of(name, origin)
        return unknown(f"${inside[:40]} is not followed", origin)

    def _origin(self, start: int, end: int) -> Origin:
        return Origin(self.path, Span(start, end), editable=False)


def _end_of_reference(text: str, dollar: int) -> int:
    """The end of `$x`, `$(...)` or `${...}`. An open one ends with the text."""
    opener = text[dollar + 1 : dollar + 2]
    if opener not in ("(", "{"):
        return min(dollar + 2, len(text))
    closer, depth = {"(": ")", "{": "}"}[opener], 0
    for at in range(dollar + 1, len(text)):
        depth += (text[at] == opener) - (text[at] == closer)
        if depth == 0:
            return at + 1
    return len(text)


def value_pieces(piece: Piece) -> tuple[Piece, ...]:
    """The text of a variable: without its comment, and with one space for each line that goes on."""
    comment = re.search(r"(?<!\\)#", piece.text)
    text = piece.part(0, comment.start()) if comment else piece
    text = text.part(0, len(text.text.rstrip()))
    found: list[Piece] = []
    at = 0
    for match in _CONTINUED.finditer(text.text):
        found += [text.part(at, match.start()), Piece(" ", text.start + match.start())]
        at = match.end()
    return (*found, text.part(at))
