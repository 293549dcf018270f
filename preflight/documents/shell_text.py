"""Shell text with the place of each character in the file, also for text that is built from an expression."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.vocabulary.values import Const, Expr, Op, Origin, Span, Unknown


class ShellText(Struct, frozen=True, eq=False, dict=True):
    """A text to parse. `offsets` has the place of each character in the file (None: the text is the file).

    `holes` are names (`PREFLIGHT_0`) in the text for values that are not constants.
    """

    path: str
    text: str
    offsets: tuple[int, ...] | None = None
    holes: dict[str, Expr] = field(default_factory=dict)

    @cached_property
    def _wide(self) -> tuple[list[int], list[int]]:
        """The byte offset behind each non-ASCII character, and the sum of their extra bytes up to there."""
        ends, extra, total = [], [], 0
        for at, char in enumerate(self.text, 1):
            if char > "\x7f":
                width = 2 if char < "\u0800" else 3 if char < "\U00010000" else 4
                total += width - 1
                ends.append(at + total)
                extra.append(total)
        return ends, extra

    def char(self, byte: int) -> int:
        """The character at a UTF-8 byte offset of the text."""
        ends, extra = self._wide
        index = bisect_right(ends, byte)
        return byte - (extra[index - 1] if index else 0)

    def span(self, start: int, end: int) -> Span:
        """The place in the file of the characters from `start` to `end`."""
        if self.offsets is None:
            return Span(start, end)
        if not self.offsets:
            return Span(0, 0)
        first = self.offsets[min(start, len(self.offsets) - 1)]
        return Span(first, max(first, self.offsets[end - 1] + 1 if end > start else first))

    def exact(self, start: int, end: int) -> bool:
        """Whether the file has these characters in a row."""
        return self.offsets is None or all(self.offsets[i + 1] == self.offsets[i] + 1 for i in range(start, end - 1))

    def origin(self, start: int, end: int, editable: bool = True) -> Origin:
        """The origin of some characters. It is editable only if the file has them in a row."""
        return Origin(self.path, self.span(start, end), None, (), editable and self.exact(start, end))


def put_together(path: str, expr: Expr) -> ShellText:
    """The text of an expression: constants of the file as text, everything else as a hole `${PREFLIGHT_n}`.

    A constant of another file is a hole too, so that it keeps its place.
    """
    pieces: list[str] = []
    offsets: list[int] = []
    holes: dict[str, Expr] = {}
    for part in parts_of(expr):
        here = part.origin is None or part.origin.path == path
        if here and isinstance(part, Const) and not isinstance(part.value, (Unknown, tuple, dict)):
            text = part.value if isinstance(part.value, str) else str(part.value)
            places = _places(text, part.origin)
        else:
            name = f"PREFLIGHT_{len(holes)}"
            holes[name], text = part, f"${{{name}}}"
            places = [part.origin.span.start if part.origin else 0] * len(text)
        pieces.append(text)
        offsets += places
    return ShellText(path, "".join(pieces), tuple(offsets), holes)


def parts_of(expr: Expr) -> list[Expr]:
    """The parts of a text that is put together, in their order."""
    if isinstance(expr, Op) and expr.operator == "concat":
        return [inner for operand in expr.operands for inner in parts_of(operand)]
    return [expr]


def _places(text: str, origin: Origin | None) -> list[int]:
    """The offset of each character of a constant. If the text in the file is longer than the constant and its quotes,
    all characters have the offset of the start."""
    if origin is None:
        return [0] * len(text)
    start, length = origin.span.start, origin.span.end - origin.span.start
    if length == len(text):
        return list(range(start, start + length))
    if length == len(text) + 2 and origin.editable:
        return list(range(start + 1, start + 1 + len(text)))
    return [start] * len(text)


def starts_at(text: str, origin: Origin | None) -> tuple[Origin | None, bool]:
    """The place of a constant without its quotes, and whether the file has its characters in a row."""
    places = _places(text, origin)
    if origin is None or not text:
        return origin, False
    exact = places[-1] == places[0] + len(text) - 1 and (len(text) > 1 or origin.span.end - origin.span.start == 1)
    return (replace(origin, span=Span(places[0], places[-1] + 1)), True) if exact else (origin, False)
