"""Adds the tape at batch 1 to a law: there a few events differ.

`contiguous()` of a transposed view does nothing where a dimension is 1: what would be copied is shared. One trace
tells: where its events are the law's, the law holds; else it is folded like any other, its sizes looked up among those
of the law. They are then written with the batch in them, and most blocks are those of the law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from preflight.memory.device.families import Family
from preflight.memory.device.fit.make import CannotMake, basis_of, fold, make, probe, request, verify
from preflight.memory.device.fit.primes import MonomialReader
from preflight.memory.device.law.made import PROBE_LAYERS, MadeLaw, Runner
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.sizes import Size, evaluate, with_derived
from preflight.memory.device.law.tape import NotRegular, Tape


class Lookup:
    """Reads byte counts as the sizes of a law at one point of primes, where no two of its formulas meet by chance; what
    it lacks `spare` reads."""

    def __init__(self, sizes: Sequence[Size], dims: Mapping[str, int], spare: MonomialReader | None) -> None:
        names = {name for size in sizes for _, monomial in size for name, _ in monomial}
        full = with_derived(dims, names)
        # Of two that are the same at batch 1 the one with the batch in it, since most storages have one.
        ordered = sorted(sizes, key=lambda size: any(name == "b" for _, monomial in size for name, _ in monomial))
        self._known = {evaluate(size, full): size for size in ordered}
        self._spare = spare

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        if self._spare is not None:
            self._spare.learn(all_values)

    def size(self, values: tuple[int, ...]) -> Size | None:
        found = self._known.get(values[0])
        return found if found is not None or self._spare is None else self._spare.size(values)


def make_law(
    family: Family, task: str, kind: str, setup: Setup, structure: Mapping[str, object], run: Runner
) -> MadeLaw:
    """`make.make`, with the tape at batch 1 where that is another. Raises CannotMake (or what `run` raises)."""
    made = make(family, task, kind, setup, structure, run)
    if "b" not in family.named or setup.loss == "chunked":  # whose pieces are no equal parts of one row
        return made
    return replace(made, tape=replace(made.tape, one=tape_at_one(made, family, task, kind, setup, structure, run)))


def tape_at_one(
    made: MadeLaw, family: Family, task: str, kind: str, setup: Setup, structure: Mapping[str, object], run: Runner
) -> Tape | None:
    """The tape at batch 1; None where it is the law's own. Raises CannotMake (or what `run` raises)."""
    extra = ("r",) if setup.peft is not None else ()
    here = family.at(structure)
    probes = [probe(here, turn, PROBE_LAYERS, extra) for turn in range(2)]
    ones = [{**dims, "b": 1} for _, dims in probes]
    asked = [request(family, task, kind, setup, structure, dims) for dims in ones]
    traces = [_bare(trace) for trace in run(asked[:1])]
    try:
        verify(made, traces[0], ones[0])
    except CannotMake:
        pass
    else:
        return None
    parameters = made.parameters
    rows = chain(parameters.outside, *parameters.layer.values(), *parameters.first.values())
    sizes = [*made.tape.sizes, *(size for size, _, _ in rows)]
    try:
        return fold(here.depths, Lookup(sizes, ones[0], None), traces).tape
    except (CannotMake, NotRegular):  # sizes that the law has not
        traces += [_bare(trace) for trace in run(asked[1:])]
        free = replace(here, named={name: made for name, made in here.named.items() if name != "b"})
        spare = MonomialReader(basis_of(free, extra), [point for point, _ in probes])
        return fold(here.depths, Lookup(sizes, ones[0], spare), traces).tape


def _bare(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Without the buffers, which no batch changes."""
    return {**trace, "buffers": []}
