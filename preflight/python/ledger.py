"""What a step of a program keeps for its backward pass: bytes of arrays, counted in its forward pass."""

from __future__ import annotations

from msgspec import Struct, field

from preflight.vocabulary.values import Const, Expr, Op


class Ledger(Struct):
    """The arrays of one round of a loop, by the ids of their storages."""

    given: set[int] = field(default_factory=set)
    """The batch itself: the loader holds it."""
    through: set[int] = field(default_factory=set)
    """Arrays that depend on weights: gradients flow through them."""
    kept: dict[int, Expr] = field(default_factory=dict)
    passing: list[Expr] = field(default_factory=list)
    """What each operation takes for a moment: the gradients of its output and input, copies in another layout."""
    steps: list[Expr] = field(default_factory=list)
    """The bytes at each backward pass."""
    unknown: bool = False
    """A layer of the model, or an operation on what it gives, is not known."""
    seen: set[int] = field(default_factory=set)
    """Arrays that were counted."""
    alive: list[object] = field(default_factory=list)
    """The arrays, so that no other object gets the id of one."""

    def keep(self, storage: int, size: Expr) -> None:
        """An array waits for the backward pass; those of the batch and those that wait already take nothing more."""
        if storage not in self.given:
            self.kept.setdefault(storage, size)

    def backward(self) -> None:
        """The backward pass frees what was kept."""
        if self.passing:
            self.steps.append(_sum([*self.kept.values(), _largest(self.passing)]))
        self.kept.clear()
        self.passing.clear()

    def bytes_of_step(self) -> Expr | None:
        """The most that any backward pass of the round starts with; None: not known."""
        return None if self.unknown or not self.steps else _largest(self.steps)


def _largest(sizes: list[Expr]) -> Expr:
    known = [one.value for one in sizes if isinstance(one, Const) and isinstance(one.value, int)]
    rest = list(dict.fromkeys(one for one in sizes if not isinstance(one, Const)))
    if not rest:
        return Const(max(known))
    one = [*rest, *([Const(max(known))] if known else [])]
    return one[0] if len(one) == 1 else Op("max", tuple(one))


def _sum(sizes: list[Expr]) -> Expr:
    total: Expr = Const(sum(one.value for one in sizes if isinstance(one, Const) and isinstance(one.value, int)))
    for one in sizes:
        if not isinstance(one, Const):
            total = Op("+", (total, one))
    return total
