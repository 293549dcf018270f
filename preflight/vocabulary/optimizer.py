"""Optimizers as rows: states that are kept, temporary tensors of a step. Other distributions add rows.

Another distribution adds optimizers by an entry point of the group `preflight.optimizers`. Its value is a module with a
tuple OPTIMIZERS of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from preflight.system.entry_points import AddedEntry
from preflight.vocabulary.extensions import OPTIMIZERS, distinct, installed, loaded, wrong


class Step(Struct, frozen=True):
    """`states`: bytes of each storage made in the first step, in order, and kept. `waves`: storages held together in
    every step; one wave is over before the next begins."""

    states: tuple[int, ...]
    waves: tuple[tuple[int, ...], ...]

    @property
    def temporary(self) -> int:
        """Bytes of the largest wave."""
        return max((sum(wave) for wave in self.waves), default=0)


Params = Sequence[tuple[int, int]]
"""(elements, bytes per element) of every trainable parameter."""
IMPLEMENTATIONS = ("foreach", "fused", "for-loop")


class Copies(Struct, frozen=True):
    """A step that makes copies of its parameters, in their own dtype.

    `states` are kept. `foreach` are held for a moment of all parameters at once, `loop` of one parameter. `bound` of
    the latter are still bound while the next parameter's are made. Fused kernels hold nothing.
    """

    states: int
    foreach: int = 0
    loop: int = 0
    bound: int = 0

    def __call__(self, implementation: str, params: Params) -> Step:
        sizes = [n * size for n, size in params]
        states = tuple(size for size in sizes for _ in range(self.states))
        if implementation == "fused":
            return Step(states, ())
        if implementation == "foreach":
            return Step(states, (tuple(size for size in sizes for _ in range(self.foreach)),) if self.foreach else ())
        if not self.loop:
            return Step(states, ())
        pairs = zip(sizes, [0, *sizes], strict=False)
        return Step(states, tuple((size,) * self.loop + (before,) * self.bound for size, before in pairs))


class Optimizer(Struct, frozen=True):
    """An optimizer that another distribution adds: the Job's name of it, its step and how programs spell it.

    `step` takes the implementation (foreach, fused or for-loop) and the parameters; `Copies` is one. Spellings are in
    lower case: names of classes and of command-line values.
    """

    name: str
    step: Callable[[str, Params], Step]
    spellings: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def added() -> Mapping[str, tuple[Optimizer, AddedEntry]]:
    """Optimizers of other distributions by name. Raises ExtensionError."""
    rows = [(row, one) for one in installed(OPTIMIZERS) for row in _rows(one)]
    distinct(((spelling, row, one) for row, one in rows for spelling in row.spellings), (), "the spelling")
    return distinct(((row.name, (row, one), one) for row, one in rows), (), "the optimizer")


def _rows(one: AddedEntry) -> tuple[Optimizer, ...]:
    rows = getattr(loaded(one), "OPTIMIZERS", None)
    if not isinstance(rows, tuple) or not all(isinstance(row, Optimizer) for row in rows):
        raise wrong(one, "it has no tuple OPTIMIZERS of Optimizer rows")
    for row in rows:
        if problem := _problem(row):
            raise wrong(one, f"the optimizer {row.name!r}: {problem}")
    return rows


def _problem(row: Optimizer) -> str | None:
    """The mistake in a row, if any: its step is called with two small parameters."""
    if not isinstance(row.name, str) or not row.name:
        return "it has no name"
    if not isinstance(row.spellings, tuple) or not all(isinstance(x, str) and x == x.lower() for x in row.spellings):
        return "its spellings are not a tuple of lower-case texts"
    for implementation in IMPLEMENTATIONS:
        try:
            step = row.step(implementation, ((4096, 4), (64, 2)))
        except Exception as error:
            return f"its step fails ({implementation}): {type(error).__name__}: {error}"
        sizes = (*step.states, *(size for wave in step.waves for size in wave)) if isinstance(step, Step) else (-1,)
        if not all(type(size) is int and size >= 0 for size in sizes):
            return f"its step must give a Step of whole numbers of bytes ({implementation})"
    return None
