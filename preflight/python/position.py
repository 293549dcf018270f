"""Where an evaluation begins and stands: what a launch gives a program, and what is around the current statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from preflight.python.objects import CallRecord
from preflight.vocabulary.values import Expr, Op

Flow: TypeAlias = Literal["next", "return", "raise", "break", "continue"]


class ProgramArguments(Struct, frozen=True):
    """`sys.argv` behind the program's name. `complete`: these are all; else nobody knows what follows them."""

    words: tuple[Expr, ...] = ()
    complete: bool = False

    def at(self, index: int) -> Expr | None:
        """`sys.argv[index]`; None for a word that is not known, and for the program's name."""
        if index < 0 and self.complete:
            index += len(self.words) + 1
        return self.words[index - 1] if 0 < index <= len(self.words) else None

    @property
    def number(self) -> int | None:
        """`len(sys.argv)`."""
        return len(self.words) + 1 if self.complete else None


class ProgramStart(Struct, frozen=True):
    """What a launch gives a program. `directory`: the current one, relative to the project's root; None: not known."""

    environment: Mapping[str, Expr] = field(default_factory=dict)
    arguments: ProgramArguments = ProgramArguments()
    directory: str | None = None


class Position(Struct):
    """The current position: the function and the blocks around the current statement."""

    conditions: list[Expr] = field(default_factory=list)
    """The conditions under which it runs."""
    handlers: list[tuple[str, ...]] = field(default_factory=list)
    """The exceptions that each enclosing `try` catches."""
    contexts: list[CallRecord] = field(default_factory=list)
    """The calls of the enclosing `with` blocks and decorators."""
    loops: int = 0
    """The number of enclosing loops."""
    loops_after: list[int] = field(default_factory=list)
    """The numbers of the last calls before these loops, where they are known."""
    turns: tuple[Expr, int, int] | None = None
    """How often the one enclosing loop runs, and how many conditions, and functions, stood before it."""
    functions: list[int] = field(default_factory=list)
    callers: list[CallRecord | None] = field(default_factory=list)
    """The functions that are being interpreted, the outermost first: ids of their nodes, and what called them."""
    entered_with: list[int] = field(default_factory=list)
    """How many conditions there were when each of these functions was entered."""
    exits: list[tuple[Flow, Expr]] = field(default_factory=list)
    """Conditional returns, breaks and continues of the function so far, each with its whole condition."""

    @property
    def turns_here(self) -> Expr | None:
        """How often the current statement runs; None where that is not known as an expression."""
        if self.turns is None or self.loops != 1:
            return None
        here = len(self.conditions), len(self.functions)
        return self.turns[0] if here == self.turns[1:] else None

    def loops_since(self, record: CallRecord | None) -> int:
        """How many of the enclosing loops began after a call: those whose rounds share what it made."""
        return self.loops - (0 if record is None else sum(number < record.number for number in self.loops_after))

    @property
    def in_function(self) -> list[Expr]:
        """The conditions met since the function was entered."""
        return self.conditions[self.entered_with[-1] if self.entered_with else 0 :]


MOST_WAYS = 8
"""Different lists of conditions under which one call is made, of which the conditions are kept."""


def either_way(one: tuple[Expr, ...], other: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The conditions of what is done under either of two lists of them: what they share, and in its place that one of
    the parts holds in which they differ. That part is left out where it only says which of two alternatives is meant
    (`model` is made in both branches of an `if`), and where one list goes no further than the other."""
    least = min(len(one), len(other))
    start = next((at for at in range(least) if not _equal(one[at], other[at])), least)
    if start == len(one) == len(other):
        return one
    end = next((at for at in range(least - start) if not _equal(one[-1 - at], other[-1 - at])), least - start)
    left, right = one[start : len(one) - end], other[start : len(other) - end]
    shared = (*one[:start], *one[len(one) - end :])
    if not left or not right or _opposite(left, right):
        return shared
    first, way = _all(left), _all(right)
    ways = first.operands if isinstance(first, Op) and first.operator == "or" else (first,)
    if any(_equal(way, each) for each in ways):
        return one
    return one if len(ways) >= MOST_WAYS else (*one[:start], Op("or", (*ways, way)), *one[len(one) - end :])


def _equal(one: Expr, other: Expr) -> bool:
    return one is other or one == other


def _opposite(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    one, other = left[0], right[0]
    return len(left) == len(right) == 1 and (Op("not", (one,)) == other or Op("not", (other,)) == one)


def _all(conditions: tuple[Expr, ...]) -> Expr:
    return conditions[0] if len(conditions) == 1 else Op("and", conditions)
