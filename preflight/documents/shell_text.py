"""Shell text that knows where each of its characters is written, also when it was put together from a string."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from preflight.vocabulary.values import Const, Expr, Op, Origin, Span, Unknown


@dataclass(frozen=True, eq=False)
class ShellText:
    """A text to parse. `offsets` has the place of each character in the file (None: the text is the file).

    `holes` are names standing for values that are not known as text (`PREFLIGHT_0`), in texts put together.
    """

    path: str
    text: str
    offsets: tuple[int, ...] | None = None
    holes: dict[str, Expr] = field(default_factory=dict)

    @cached_property
    def _wide(self) -> tuple[list[int], list[int]]:
        """Byte offsets behind each character beyond ASCII, and the bytes they take beyond one each, summed up."""
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
        """Where the characters from `start` to `end` are written in the file."""
        if self.offsets is None:
            return Span(start, end)
        if not self.offsets:
            return Span(0, 0)
        first = self.offsets[min(start, len(self.offsets) - 1)]
        return Span(first, max(first, self.offsets[end - 1] + 1 if end > start else first))

    def exact(self, start: int, end: int) -> bool:
        """Whether the characters stand in the file one after the other, as they are."""
        return self.offsets is None or all(self.offsets[i + 1] == self.offsets[i] + 1 for i in range(start, end - 1))

    def origin(self, start: int, end: int, editable: bool = True) -> Origin:
        """The place of some characters; editable only where the file holds them as they are."""
        return Origin(self.path, self.span(start, end), None, (), editable and self.exact(start, end))


def put_together(path: str, expr: Expr) -> ShellText:
    """The text that an expression makes: constants as they are, anything else as a hole `${PREFLIGHT_n}`."""
    pieces: list[str] = []
    offsets: list[int] = []
    holes: dict[str, Expr] = {}
    for part in _parts(expr):
        if isinstance(part, Const) and not isinstance(part.value, (Unknown, tuple, dict)):
            text = part.value if isinstance(part.value, str) else str(part.value)
            places = _places(text, part.origin)
        else:
            name = f"PREFLIGHT_{len(holes)}"
            holes[name], text = part, f"${{{name}}}"
            places = [part.origin.span.start if part.origin else 0] * len(text)
        pieces.append(text)
        offsets += places
    return ShellText(path, "".join(pieces), tuple(offsets), holes)


def _parts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Op) and expr.operator == "concat":
        return [inner for operand in expr.operands for inner in _parts(operand)]
    return [expr]


def _places(text: str, origin: Origin | None) -> list[int]:
    """Where each character of a constant stands: one after the other if its place is as long as it is (with two quotes
    around it at most), else all at the start."""
    if origin is None:
        return [0] * len(text)
    start, length = origin.span.start, origin.span.end - origin.span.start
    if length == len(text):
        return list(range(start, start + length))
    if length == len(text) + 2 and origin.editable:
        return list(range(start + 1, start + 1 + len(text)))
    return [start] * len(text)
