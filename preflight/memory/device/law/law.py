"""The memory law of a step: its live bytes at every moment that can be the peak, at any dimensions and any depth.

In a stack of equal layers live memory is linear in the layer's index, so its extremes lie in the first and the last of
the layers between the ends: the blocks that a tape keeps are all the moments there are. `Law.peak` runs through them in
a fraction of a millisecond; `rows` writes them as formulas.

Readings of one tape: in a step alone gradients are born one by one in backward; while accumulating, those of earlier
micro-steps are alive throughout and each new one lives only until it is added. A loop keeping what its model returned
keeps its logits through backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from preflight.memory.device.law.alignment import aligned, joined
from preflight.memory.device.law.expand import at_depth, expand
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.sizes import Monomial, Size, evaluate, product, with_derived
from preflight.memory.device.law.tape import EDGE, Tape, TapeItem, block_of

PARTS = ("gradients", "activations", "logits", "temporary", "weights")
KEPT = frozenset("oh")
"""Marks of what a program's names keep beyond a step: what the model returned, and what the loss's graph holds."""
MIN_LAYERS = 2 * EDGE
"""Below this the ends of a pass overlap, and the tape is walked layer by layer instead."""
_KEPT_LAYERS = MIN_LAYERS + 2


class Peak(Struct, frozen=True):
    """The largest moment: bytes, by part, and where it is."""

    bytes: int
    parts: Mapping[str, int]
    phase: str
    where: str


Delta: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""(column, coefficient, part): births minus deaths, as multiples of the columns' values."""


class _Stretch(Struct, frozen=True):
    """Events of one kept block: indices into sizes followed by their negatives; None: one token of no effect."""

    deltas: tuple[int, ...]
    parts: tuple[int, ...]
    modules: tuple[int, ...]
    phase: str
    repeats: str | None
    """The depth whose middle layers (less two) follow this block without being walked."""
    moments: tuple[tuple[int, Delta], ...]
    """Moments that can be the peak: events until then, and the changes since the moment before."""
    rest: Delta
    """The changes after the last of them."""


class Law:
    """A tape prepared for finding its peak. `accumulating`, `outputs_kept`: see the module."""

    KEPT_LAYERS = _KEPT_LAYERS

    def __init__(self, tape: Tape, accumulating: bool = False, outputs_kept: bool = False) -> None:
        self.tape, self.accumulating, self.outputs_kept = tape, accumulating, outputs_kept
        self._folded: dict[tuple[object, ...], tuple[_Stretch, ...]] = {}

    @cached_property
    def columns(self) -> Columns:
        return Columns(self.tape.sizes)

    @cached_property
    def _one(self) -> Law:
        return Law(self.tape.one or self.tape, self.accumulating, self.outputs_kept)

    def at(self, dims: Mapping[str, int]) -> Law:
        """The law of the tape that holds at dimensions."""
        return self if self.tape.at(dims) is self.tape else self._one

    def peak(self, dims: Mapping[str, int], phases: frozenset[str] | None = None, smooth: bool = False) -> Peak:
        """The largest moment (of `phases` alone, when given) at dimensions: one integer per dimension of the tape.

        `smooth`: with padded copies at multiples of 8 too, so that it grows with every length.
        """
        law = self.at(dims)
        return law._peak(dims, phases, frozenset() if smooth else aligned(law.tape.sizes, dims))

    def most(self, dims: Mapping[str, int], phases: frozenset[str] | None = None, smooth: bool = False) -> int:
        """The bytes of `peak` alone. They are kept: jobs of one kind ask again at the same dimensions."""
        return _most(self, tuple(dims.items()), phases, smooth)

    def _peak(self, dims: Mapping[str, int], phases: frozenset[str] | None, lengths: frozenset[str]) -> Peak:
        values = self.columns.values(dims)
        stretches = self.stretches(dims, lengths)
        best, at = self._highest(values, stretches, dims, phases)
        return self._describe(best, at, stretches, values, dims)

    def _highest(
        self,
        values: list[int],
        stretches: tuple[_Stretch, ...],
        dims: Mapping[str, int],
        phases: frozenset[str] | None,
    ) -> tuple[int, tuple[int, int]]:
        """Bytes of the largest moment, and where it is: its stretch, and its number there."""
        best, best_at = -1, (0, 0)
        live = 0
        for number, stretch in enumerate(stretches):
            before = live
            wanted = phases is None or stretch.phase in phases
            for index, (_, delta) in enumerate(stretch.moments):
                for column, coefficient, _ in delta:
                    live += coefficient * values[column]
                if wanted and live > best:
                    best, best_at = live, (number, index)
            for column, coefficient, _ in stretch.rest:
                live += coefficient * values[column]
            if stretch.repeats is not None:
                live += (live - before) * (dims[stretch.repeats] - _KEPT_LAYERS)
        return best, best_at

    def _describe(
        self,
        best: int,
        at: tuple[int, int],
        stretches: tuple[_Stretch, ...],
        values: list[int],
        dims: Mapping[str, int],
    ) -> Peak:
        parts = [0] * len(PARTS)
        for stretch in stretches[: at[0]]:
            before = list(parts)
            for delta in (*(delta for _, delta in stretch.moments), stretch.rest):
                for column, coefficient, part in delta:
                    parts[part] += coefficient * values[column]
            if stretch.repeats is not None:
                more = dims[stretch.repeats] - _KEPT_LAYERS
                parts = [now + (now - then) * more for now, then in zip(parts, before, strict=True)]
        stretch = stretches[at[0]]
        for _, delta in stretch.moments[: at[1] + 1]:
            for column, coefficient, part in delta:
                parts[part] += coefficient * values[column]
        events = stretch.moments[at[1]][0]
        module = self.tape.modules[stretch.modules[events - 1]] if events and self.tape.modules else ""
        return Peak(best, dict(zip(PARTS, parts, strict=True)), stretch.phase, module)

    def stretches(self, dims: Mapping[str, int], lengths: frozenset[str] = frozenset()) -> tuple[_Stretch, ...]:
        """The blocks that are walked, at a depth; `lengths` need no padding (see `alignment`)."""
        depths = sorted(set(self.tape.depths.values()))
        whole = any(dims[depth] < _KEPT_LAYERS for depth in depths)
        layers = tuple(dims[depth] if whole else _KEPT_LAYERS for depth in depths)
        key = (layers, lengths)
        if key not in self._folded:
            kept = dict(zip(depths, layers, strict=True))
            self._folded[key] = _fold(self, kept, whole, self.columns, lengths)
        return self._folded[key]


@lru_cache(maxsize=1024)
def _most(law: Law, given: tuple[tuple[str, int], ...], phases: frozenset[str] | None, smooth: bool) -> int:
    dims = dict(given)
    one = law.at(dims)
    lengths = frozenset[str]() if smooth else aligned(one.tape.sizes, dims)
    return one._highest(one.columns.values(dims), one.stretches(dims, lengths), dims, phases)[0]


class Columns:
    """The distinct terms of a tape's sizes: a monomial each, or a whole size where a coefficient is no integer."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.monomials: dict[Monomial, int] = {}
        self.odd: dict[Size, int] = {}
        self.terms = [self._terms(size) for size in sizes]
        """For each size its (column, coefficient) pairs."""
        names = {name for size in sizes for _, monomial in size for name, _ in monomial}
        self.names = frozenset(names)
        self.count = len(self.monomials) + len(self.odd)
        self.signed = frozenset(at for size, at in self.odd.items() if any(c < 0 for c, _ in size))
        """Columns whose values may be negative."""
        self.moments: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[tuple[int, Delta], ...], Delta]] = {}
        """`_moments` of the blocks that were folded: most layers of a pass are equal."""

    def _terms(self, size: Size) -> tuple[tuple[int, int], ...]:
        def column(table: dict[Any, int], key: object) -> int:
            return table.setdefault(key, len(self.monomials) + len(self.odd))

        if all(isinstance(coefficient, int) for coefficient, _ in size):
            return tuple((column(self.monomials, monomial), int(coefficient)) for coefficient, monomial in size)
        return ((column(self.odd, size), 1),)

    def values(self, dims: Mapping[str, int]) -> list[int]:
        """Bytes of every column at dimensions."""
        full = with_derived(dims, self.names)
        found = [0] * self.count
        for monomial, at in self.monomials.items():
            found[at] = product(monomial, 1, full)
        for size, at in self.odd.items():
            found[at] = evaluate(size, full)
        return found


def _moments(
    deltas: Sequence[int], parts: Sequence[int], columns: Columns
) -> tuple[tuple[tuple[int, Delta], ...], Delta]:
    """The moments of a block that can be the largest whatever the dimensions are, and what follows the last of them.

    Live memory is largest right before something dies. A moment is left out where one beside it, of those that are
    left, holds at least as much of every column.
    """
    count = len(columns.terms)
    kept: list[tuple[int, dict[tuple[int, int], int]]] = [(0, {})]
    pending: dict[tuple[int, int], int] = {}
    top = 0
    for number, (step, part) in enumerate((*zip(deltas, parts, strict=True), (count, 0))):
        if step == 2 * count:
            continue
        if step >= count and top:  # the last moment before a death, or before the end
            pending = _offer(kept, top, pending, columns)
            top = 0
        if number == len(deltas):
            break
        for column, coefficient in columns.terms[step % count]:
            key = (column, part)
            pending[key] = pending.get(key, 0) + (coefficient if step < count else -coefficient)
        top = number + 1 if step < count else top
    return tuple((at, _packed(delta)) for at, delta in kept), _packed(pending)


def _offer(
    kept: list[tuple[int, dict[tuple[int, int], int]]], at: int, pending: dict[tuple[int, int], int], columns: Columns
) -> dict[tuple[int, int], int]:
    """Adds a moment that nothing kept covers, in place of those that it covers; what is pending after it."""
    while True:
        change: dict[int, int] = {}
        for (column, _), coefficient in pending.items():
            change[column] = change.get(column, 0) + coefficient
        plain = all(not coefficient or column not in columns.signed for column, coefficient in change.items())
        if plain and all(coefficient <= 0 for coefficient in change.values()):
            return pending
        if not plain or any(coefficient < 0 for coefficient in change.values()):
            break
        _, before = kept.pop()
        for key, coefficient in before.items():
            pending[key] = pending.get(key, 0) + coefficient
        if not kept:
            break
    kept.append((at, pending))
    return {}


def _packed(delta: Mapping[tuple[int, int], int]) -> Delta:
    return tuple((column, coefficient, part) for (column, part), coefficient in delta.items() if coefficient)


def part_of(size: Size, mark: str, birth_phase: str, death_phase: str) -> int:
    """The kind of a storage, as an index of PARTS: a gradient; weights gathered from other ranks; logits (batch x
    vocabulary); an activation, if something after forward still needs it; or temporary."""
    if mark == "g":
        return 0
    if mark == "w":
        return 4
    if _of_logits(size):
        return 2
    return 1 if birth_phase == "forward" and death_phase != "forward" else 3


@lru_cache(maxsize=4096)
def _of_logits(size: Size) -> bool:
    return any({"V", "b"} <= {name for name, _ in monomial} for _, monomial in size)


def _fold(
    law: Law, dims: Mapping[str, int], whole: bool, columns: Columns, lengths: frozenset[str] = frozenset()
) -> tuple[_Stretch, ...]:
    tape, accumulating = at_depth(law.tape, dims), law.accumulating
    events = expand(tape, dims)
    if lengths:
        events = joined(events, tape.sizes, lengths)
    death_phase = {birth: tape.items[item].phase for kind, birth, _, _, item in events if kind == "d"}
    count = len(tape.sizes)
    size_of: dict[int, tuple[int, int]] = {}
    kept = {birth for kind, birth, _, mark, _ in events if kind == "b" and law.outputs_kept and KEPT & {*mark}}
    stretches: list[_Stretch] = []
    at = 0
    for item in tape.items:
        layers = dims[tape.depths[item.stack]] if item.stack is not None else 1
        for turn, layer in enumerate(range(layers - 1, -1, -1) if item.down else range(layers)):
            block = item.blocks[block_of(layer, layers) if item.stack is not None else 0]
            deltas, parts, modules = [], [], []
            for token, (kind, birth, size, mark, _) in zip(block, events[at : at + len(block)], strict=True):
                if not kind:
                    part, step = 0, 2 * count
                elif kind == "b":
                    part = part_of(tape.sizes[size], mark, item.phase, death_phase.get(birth, "end"))
                    size_of[birth] = (size, part)
                    step = size
                else:
                    size, part = size_of[birth]
                    added = part == 0 and accumulating
                    step = count + size if (kind == "+") == added and birth not in kept else 2 * count
                deltas.append(step)
                parts.append(part)
                modules.append(token.where)
            at += len(block)
            first_middle = item.stack is not None and not whole and turn == EDGE
            steps = tuple(deltas), tuple(parts)
            if steps not in columns.moments:
                columns.moments[steps] = _moments(*steps, columns)
            repeats = tape.depths[item.stack or ""] if first_middle else None
            phase = item.phase.rstrip("~")
            stretches.append(_Stretch(*steps, tuple(modules), phase, repeats, *columns.moments[steps]))
    return tuple(stretches)


# --- rows: the same moments as formulas -------------------------------------------------------------------------------


class LawRow(Struct, frozen=True):
    """A moment as a formula: (coefficient, monomial, part). Depths are dimensions like any other."""

    phase: str
    where: str
    terms: tuple[tuple[int | float, Monomial, str], ...]

    def bytes(self, dims: Mapping[str, int]) -> int:
        """Its value; `dims` must hold derived dimensions too (`sizes.with_derived`)."""
        total = 0.0
        for coefficient, monomial, _ in self.terms:
            for name, exponent in monomial:
                coefficient = coefficient * dims[name] ** exponent
            total += coefficient
        return round(total)


def rows(law: Law) -> list[LawRow]:
    """Every moment right after a birth, for stacks of MIN_LAYERS layers or more."""
    tape = law.tape
    depths = sorted(set(tape.depths.values()))
    stretches = _fold(law, dict.fromkeys(depths, _KEPT_LAYERS), False, Columns(tape.sizes))
    live: dict[tuple[int, Monomial], float] = {}
    found = []
    count = len(tape.sizes)
    for stretch in stretches:
        before = dict(live)
        for step, part, module in zip(stretch.deltas, stretch.parts, stretch.modules, strict=True):
            if step < 2 * count:
                sign = 1 if step < count else -1
                for coefficient, monomial in tape.sizes[step % count]:
                    live[part, monomial] = live.get((part, monomial), 0.0) + sign * coefficient
            if step < count:
                terms = tuple((_number(c), m, PARTS[p]) for (p, m), c in sorted(live.items()) if c)
                found.append(LawRow(stretch.phase, tape.modules[module], terms))
        if stretch.repeats is not None:
            nets = {key: live.get(key, 0.0) - before.get(key, 0.0) for key in {*live, *before}}
            for (part, monomial), net in nets.items():
                deeper = tuple(sorted((*monomial, (stretch.repeats, 1))))
                live[part, deeper] = live.get((part, deeper), 0.0) + net
                live[part, monomial] = live.get((part, monomial), 0.0) - net * _KEPT_LAYERS
    return found


def _number(x: float) -> int | float:
    return int(x) if x == int(x) else x


__all__ = ["MIN_LAYERS", "PARTS", "Law", "LawRow", "Peak", "TapeItem", "part_of", "rows"]


def none_unsure(dims: Mapping[str, int]) -> int:
    """A law is its own."""
    return 0


class Laws(Struct, frozen=True, dict=True):
    """One job's law of a kind of step: the tape, and its readings without and with accumulated gradients."""

    made: MadeLaw
    plain: Law
    accumulating: Law
    shipped: bool
    with_outputs: tuple[Law, Law]
    made_by: tuple[tuple[str, str], ...] = ()
    """Versions of what traced it."""
    instead: str = ""
    """The key that was requested, if this law is used instead of its law."""
    unsure: Callable[[Mapping[str, int]], int] = none_unsure
    """Bytes that the law of what was asked for may have more, at dimensions."""
    spared: float = 0.0
    """The share of its bytes by which the law of what was asked for may be lower."""

    @classmethod
    def of(cls, made: MadeLaw, shipped: bool, made_by: Mapping[str, str] | None = None) -> Laws:
        tape = made.tape
        kept = (Law(tape, False, True), Law(tape, True, True))
        return cls(made, Law(tape), Law(tape, True), shipped, kept, tuple(sorted((made_by or {}).items())))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """The outputs of the model except the loss: indices of the sizes of their storages."""
        tape = self.made.tape
        literal = (item.blocks[0] for item in tape.items if item.stack is None)
        return tuple(token.at for block in literal for token in block if token.kind == "b" and "o" in token.mark)

    def held_by_loss(self, dims: Mapping[str, int]) -> int:
        """Bytes of what lives as long as a name of the program holds the loss."""
        tape = self.made.tape
        if not any("h" in t.mark for item in tape.items for block in item.blocks for t in block if t.kind == "b"):
            return 0
        sizes = tape.values(dims)
        return sum(sizes[size] for kind, _, size, mark, _ in expand(tape, dims) if kind == "b" and "h" in mark)

    def reading(self, accumulating: bool, outputs_kept: bool) -> Law:
        """The law without or with gradients of earlier micro-steps, and without or with outputs kept."""
        return self.with_outputs[accumulating] if outputs_kept else (self.plain, self.accumulating)[accumulating]


# Which moment of a law is the largest, over a grid of batch and length.

BATCHES = (1, 2, 4, 8, 16, 32, 64)


class Regions(Struct, frozen=True):
    """`ruling`: the rows that are the largest somewhere; `grid[batch][length]`: which of them it is there."""

    ruling: tuple[LawRow, ...]
    others: int
    grid: Mapping[int, Mapping[int, int]]


def regions(
    law: Law, dims: Mapping[str, int], length: str, lengths: Sequence[int], batches: Sequence[int] = BATCHES
) -> Regions:
    """Rows of a law by where they rule. `dims`: a model's dimensions; `length`: the one that varies with b."""
    every = rows(law)
    names = {name for row in every for _, monomial, _ in row.terms for name, _ in monomial}
    found: dict[int, int] = {}
    grid: dict[int, dict[int, int]] = {}
    for batch in batches:
        for size in lengths:
            full = with_derived({**dims, "b": batch, length: size}, names)
            best = max(range(len(every)), key=lambda n: every[n].bytes(full))
            grid.setdefault(batch, {})[size] = found.setdefault(best, len(found))
    return Regions(tuple(every[n] for n in found), len(every) - len(found), grid)
