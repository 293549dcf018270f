"""The memory law of a step: its live bytes at every moment that can be the peak, at any dimensions and any depth.

In a stack of equal layers live memory is linear in the layer's index, so its extremes lie in the first and the last of
the layers between the ends: the blocks that a tape keeps are all the moments there are. `Law.peak` runs through them in
a fraction of a millisecond; `rows` writes them as formulas.

Readings of one tape: in a step alone gradients are born one by one in backward; while accumulating, those of earlier
micro-steps are alive throughout and each new one lives only until it is added. A loop keeping what its model returned
keeps its logits through backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from preflight.memory.device.sizes import Monomial, Size
from preflight.memory.device.tape import EDGE, Tape, TapeItem, block_of, expand
from preflight.records import dataclass

PARTS = ("gradients", "activations", "logits", "temporary")
MIN_LAYERS = 2 * EDGE
"""Below this the ends of a pass overlap, and the tape is walked layer by layer instead."""
_KEPT_LAYERS = MIN_LAYERS + 2


@dataclass(frozen=True)
class Peak:
    """The largest moment: bytes, by part, and where it is."""

    bytes: int
    parts: Mapping[str, int]
    phase: str
    where: str


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Events of one kept block: indices into sizes followed by their negatives; None: one token of no effect."""

    deltas: tuple[int, ...]
    parts: tuple[int, ...]
    modules: tuple[int, ...]
    phase: str
    repeats: str | None
    """The depth whose middle layers (less two) follow this block without being walked."""


class Law:
    """A tape prepared for finding its peak. `accumulating`, `outputs_kept`: see the module."""

    def __init__(self, tape: Tape, accumulating: bool = False, outputs_kept: bool = False) -> None:
        self.tape, self.accumulating, self.outputs_kept = tape, accumulating, outputs_kept
        self._folded: tuple[_Stretch, ...] | None = None

    def peak(self, dims: Mapping[str, int], phases: frozenset[str] | None = None) -> Peak:
        """The largest moment (of `phases` alone, when given) at dimensions: one integer per dimension of the tape."""
        values = self.tape.values(dims)
        signed = [*values, *(-v for v in values), 0]
        best, best_at = -1, (0, 0)
        live = 0
        stretches = self._stretches(dims)
        for number, stretch in enumerate(stretches):
            running = list(accumulate((signed[i] for i in stretch.deltas), initial=live))
            if phases is None or stretch.phase in phases:
                top = max(running)
                if top > best:
                    best, best_at = top, (number, running.index(top))
            net = running[-1] - live
            live = running[-1]
            if stretch.repeats is not None:
                live += net * (dims[stretch.repeats] - _KEPT_LAYERS)
        return self._describe(best, best_at, stretches, signed, dims)

    def _describe(self, best: int, at: tuple[int, int], stretches: tuple[_Stretch, ...], signed: list[int],
                  dims: Mapping[str, int]) -> Peak:  # fmt: skip
        parts = dict.fromkeys(PARTS, 0)
        for number, stretch in enumerate(stretches[: at[0] + 1]):
            length = at[1] if number == at[0] else len(stretch.deltas)
            before = dict(parts)
            for index, part in zip(stretch.deltas[:length], stretch.parts, strict=False):
                parts[PARTS[part]] += signed[index]
            if stretch.repeats is not None and number < at[0]:
                for name in PARTS:
                    parts[name] += (parts[name] - before[name]) * (dims[stretch.repeats] - _KEPT_LAYERS)
        stretch = stretches[at[0]]
        module = self.tape.modules[stretch.modules[at[1] - 1]] if at[1] and self.tape.modules else ""
        return Peak(best, parts, stretch.phase, module)

    def _stretches(self, dims: Mapping[str, int]) -> tuple[_Stretch, ...]:
        depths = set(self.tape.depths.values())
        if any(dims[depth] < _KEPT_LAYERS for depth in depths):
            return _fold(self, dims, whole=True)
        if self._folded is None:
            self._folded = _fold(self, dict.fromkeys(depths, _KEPT_LAYERS), whole=False)
        return self._folded


def part_of(size: Size, mark: str, birth_phase: str, death_phase: str) -> int:
    """What a storage is, as an index of PARTS: a gradient; logits (batch x vocabulary); an activation, if something
    after forward still needs it; or temporary."""
    if mark == "g":
        return 0
    for _, monomial in size:
        names = {name for name, _ in monomial}
        if "V" in names and "b" in names:
            return 2
    return 1 if birth_phase == "forward" and death_phase != "forward" else 3


def _fold(law: Law, dims: Mapping[str, int], whole: bool) -> tuple[_Stretch, ...]:
    tape, accumulating = law.tape, law.accumulating
    events = expand(tape, dims)
    death_phase = {birth: tape.items[item].phase for kind, birth, _, _, item in events if kind == "d"}
    count = len(tape.sizes)
    size_of: dict[int, tuple[int, int]] = {}
    kept = {birth for kind, birth, _, mark, _ in events if kind == "b" and law.outputs_kept and "o" in mark}
    stretches: list[_Stretch] = []
    at = 0
    for item in tape.items:
        layers = dims[tape.depths[item.stack]] if item.stack is not None else 1
        for turn, layer in enumerate(range(layers - 1, -1, -1) if item.down else range(layers)):
            block = item.blocks[block_of(layer, layers) if item.stack is not None else 0]
            deltas, parts, modules = [], [], []
            for token, (kind, birth, size, mark, _) in zip(block, events[at : at + len(block)], strict=True):
                if kind == "b":
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
            stretches.append(_Stretch(tuple(deltas), tuple(parts), tuple(modules), item.phase.rstrip("~"),
                                      tape.depths[item.stack or ""] if first_middle else None))  # fmt: skip
    return tuple(stretches)


# --- rows: the same moments as formulas -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
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


def rows(law: Law) -> list[Row]:
    """Every moment right after a birth, for stacks of MIN_LAYERS layers or more."""
    tape = law.tape
    depths = sorted(set(tape.depths.values()))
    stretches = _fold(law, dict.fromkeys(depths, _KEPT_LAYERS), whole=False)
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
                found.append(Row(stretch.phase, tape.modules[module], terms))
        if stretch.repeats is not None:
            nets = {key: live.get(key, 0.0) - before.get(key, 0.0) for key in {*live, *before}}
            for (part, monomial), net in nets.items():
                deeper = tuple(sorted((*monomial, (stretch.repeats, 1))))
                live[part, deeper] = live.get((part, deeper), 0.0) + net
                live[part, monomial] = live.get((part, monomial), 0.0) - net * _KEPT_LAYERS
    return found


def _number(x: float) -> int | float:
    return int(x) if x == int(x) else x


__all__ = ["MIN_LAYERS", "PARTS", "Law", "Peak", "Row", "TapeItem", "part_of", "rows"]
