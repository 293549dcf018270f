"""The requested tier of many jobs of one law at once (needs numpy).

Jobs that differ in few dimensions have all others in common. With those put in, every moment of `Law.peak` is a
polynomial of some six terms, and nearly all moments are below another one whatever the rest is: a handful is left to
evaluate for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from preflight.memory.device.law.alignment import ALIGNMENT, padded
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.sizes import Monomial, Size, product, rounded, with_derived

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

Fixed: TypeAlias = "tuple[tuple[str, int], ...]"
"""Dimensions that all jobs have in common, sorted."""
PIECE = 4096
"""Jobs that are evaluated together: their terms stay in a core's cache."""


def peaks(law: Law, dims: Mapping[str, Any], smooth: bool = False) -> Numbers:
    """Peak bytes of each job, as `Law.peak` has them. `dims`: a number for all jobs, or an array or a list with a
    number for each; depths are numbers for all.

    Sums of bytes are 64-bit integers. Raises ValueError for columns of several lengths.
    """
    import numpy as np

    arrays = {name: np.asarray(given, np.int64) for name, given in dims.items() if not isinstance(given, int)}
    if len({len(array) for array in arrays.values()}) > 1:
        raise ValueError("the columns have different lengths")
    fixed: Fixed = tuple(sorted((name, given) for name, given in dims.items() if isinstance(given, int)))
    jobs = len(next(iter(arrays.values()))) if arrays else 1
    found: Numbers = np.zeros(jobs, np.int64)
    for one, lengths, at in _groups(law, dims, arrays, jobs, smooth):
        curves = _curves(one, fixed, tuple(sorted(arrays)), lengths)
        for start in range(0, len(at), PIECE):
            some = at[start : start + PIECE]
            found[some] = curves.largest({name: array[some] for name, array in arrays.items()}, len(some))
    return found


class _Curves(Struct, frozen=True):
    """Moments as polynomials: a row of `matrix` for each, a column for each of `terms` and then of `odd`."""

    terms: tuple[Monomial, ...]
    odd: tuple[Size, ...]
    """Whole sizes whose coefficients are no integers: they are rounded for each job."""
    fixed: Fixed
    matrix: Numbers

    def largest(self, arrays: Mapping[str, Numbers], jobs: int) -> Numbers:
        """The largest moment of each job."""
        import numpy as np

        names = {name for monomial in self.terms for name, _ in monomial}
        full = _derived(arrays, names)
        values: Numbers = np.empty((len(self.terms) + len(self.odd), jobs), np.int64)
        for row, monomial in enumerate(self.terms):
            values[row] = product(monomial, 1, full)
        if self.odd:
            names = {name for size in self.odd for _, monomial in size for name, _ in monomial}
            every = _derived({**dict(self.fixed), **arrays}, names)
            for row, size in enumerate(self.odd, len(self.terms)):
                values[row] = np.rint(sum(coefficient * product(one, 1, every) for coefficient, one in size))
        most: Numbers = (self.matrix @ values).max(axis=0)
        return most


def _derived(dims: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """`with_derived`, whose arithmetic is that of arrays too."""
    return with_derived(dims, names)


def _groups(
    law: Law, dims: Mapping[str, Any], arrays: Mapping[str, Numbers], jobs: int, smooth: bool
) -> Iterator[tuple[Law, frozenset[str], Numbers]]:
    """Jobs that one tape holds for: its law, the lengths that need no padding, and the jobs' numbers."""
    import numpy as np

    def where(name: str, condition: Callable[[Any], Any]) -> Any:
        given = condition(arrays[name] if name in arrays else dims.get(name, 2))
        return given if name in arrays else np.full(jobs, given)

    single = where("b", lambda batch: batch == 1)
    for batch, chosen in ((1, single), (2, ~single)):
        if not chosen.any():
            continue
        one = law.at({"b": batch})
        parts = [(frozenset[str](), chosen)]
        for name in () if smooth else sorted(padded(one.tape.sizes)):
            plain = where(name, lambda length: length % ALIGNMENT == 0)
            parts = [
                (more, some & fits)
                for lengths, some in parts
                for more, fits in ((lengths, ~plain), (lengths | {name}, plain))
            ]
        for lengths, some in parts:
            if some.any():
                yield one, lengths, np.flatnonzero(some)


@lru_cache(maxsize=4096)
def _curves(law: Law, fixed: Fixed, varying: tuple[str, ...], lengths: frozenset[str]) -> _Curves:
    """The moments of a law with some dimensions put in. Those below another at all dimensions are left out."""
    import numpy as np

    columns, common = law.columns, dict(fixed)
    free = {name for name in columns.names if name in varying or rounded(name) in varying}
    full = with_derived(common, columns.names - free)
    terms: dict[Monomial, int] = {}
    put_in = []
    for monomial, at in columns.monomials.items():
        rest = tuple((name, exponent) for name, exponent in monomial if name in free)
        known = tuple((name, exponent) for name, exponent in monomial if name not in free)
        put_in.append((at, terms.setdefault(rest, len(terms)), product(known, 1, full)))
    put_in += [(at, len(terms) + row, 1) for row, at in enumerate(columns.odd.values())]
    into: Numbers = np.zeros((columns.count, len(terms) + len(columns.odd)), np.int64)
    for at, term, factor in put_in:
        into[at, term] = factor
    depths = tuple((depth, common[depth]) for depth in sorted({*law.tape.depths.values()}))
    matrix: Numbers = _moments(law, depths, lengths) @ into
    signed = [len(terms) + row for row, at in enumerate(columns.odd.values()) if at in columns.signed]
    return _Curves(tuple(terms), tuple(columns.odd), fixed, _highest(matrix, signed))


def _highest(matrix: Numbers, signed: Sequence[int]) -> Numbers:
    """The rows that no other row covers in every column. `signed`: columns whose values may be negative."""
    import numpy as np

    compared: Numbers = np.concatenate([matrix, -matrix[:, signed]], axis=1)
    left = np.argsort(-matrix.sum(axis=1), kind="stable")
    kept = []
    while len(left):  # a row with the largest sum is covered by none but its equals
        kept.append(left[0])
        left = left[(compared[left] > compared[left[0]]).any(axis=1)]
    return matrix[kept]


@lru_cache(maxsize=64)
def _moments(law: Law, depths: tuple[tuple[str, int], ...], lengths: frozenset[str]) -> Numbers:
    """A row for each moment of `Law.peak` at these depths: how much of every column is alive there."""
    import numpy as np

    single = dict(depths)
    rows, at, by, tops, repeats = [], [], [], [0], []
    number = 0
    for stretch in law.stretches(single, lengths):
        first = number
        for _, delta in stretch.moments:
            number += 1
            tops.append(number)
            for column, coefficient, _ in delta:
                rows.append(number)
                at.append(column)
                by.append(coefficient)
        number += 1
        for column, coefficient, _ in stretch.rest:
            rows.append(number)
            at.append(column)
            by.append(coefficient)
        if stretch.repeats is not None:
            number += 1
            repeats.append((number, first, single[stretch.repeats] - law.KEPT_LAYERS))
    changes: Numbers = np.zeros((number + 1, law.columns.count), np.int64)
    np.add.at(changes, (rows, at), by)
    for row, first, times in repeats:  # the layers between, which are not walked
        changes[row] = changes[first + 1 : row].sum(axis=0) * times
    alive: Numbers = np.cumsum(changes, axis=0)[tops]
    return alive
