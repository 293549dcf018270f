"""The requested tier of many jobs of one law at once: every moment of `Law.peak` as a row of a matrix (needs numpy)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

from preflight.memory.device.law.alignment import ALIGNMENT, padded
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.sizes import with_derived

Numbers: TypeAlias = "Sequence[int] | int"
PIECE = 4096
"""Jobs that are evaluated together: their columns stay in a core's cache."""


def peaks(law: Law, dims: Mapping[str, Numbers]) -> list[int]:
    """Peak bytes of each job, as `Law.peak` has them. `dims`: a number for all jobs, or a number for each; depths are
    numbers for all.

    Sums of bytes are held as floats, which are exact up to 2^53. Raises ValueError for columns of several lengths.
    """
    import numpy as np

    counts = {len(given) for given in dims.values() if not isinstance(given, int)}
    if len(counts) > 1:
        raise ValueError("the columns have different lengths")
    jobs = counts.pop() if counts else 1
    arrays = {name: np.asarray(given, dtype=np.float64) for name, given in dims.items()}
    depths = tuple(sorted((name, int(arrays[name])) for name in set(law.tape.depths.values())))
    found: Any = np.zeros(jobs, dtype=np.int64)
    for one, lengths, at in _groups(law, arrays, jobs):
        matrix = _matrix(one, depths, lengths)
        for start in range(0, len(at), PIECE):
            some = at[start : start + PIECE]
            piece = {name: a[some] if a.ndim else a for name, a in arrays.items()}
            found[some] = (matrix @ _values(one, piece, len(some))).max(axis=0)
    return [int(x) for x in found]


def _groups(law: Law, arrays: Mapping[str, Any], jobs: int) -> Iterator[tuple[Law, frozenset[str], Any]]:
    """Jobs that one tape holds for: its law, the lengths that need no padding, and the jobs' numbers."""
    import numpy as np

    def holds(condition: Any) -> Any:
        return np.broadcast_to(condition, jobs)

    single = holds(arrays["b"] == 1) if "b" in arrays else np.zeros(jobs, dtype=bool)
    for batch, chosen in ((1, single), (2, ~single)):
        one = law.at({"b": batch})
        names = sorted(padded(one.tape.sizes))
        for those in product((False, True), repeat=len(names)):
            fits = chosen
            for name, wanted in zip(names, those, strict=True):
                fits = fits & holds((arrays[name] % ALIGNMENT == 0) == wanted)
            if fits.any():
                yield one, frozenset(n for n, wanted in zip(names, those, strict=True) if wanted), np.flatnonzero(fits)


@lru_cache(maxsize=32)
def _matrix(law: Law, depths: tuple[tuple[str, int], ...], lengths: frozenset[str]) -> Any:
    """A row for each moment that can be the largest: how much of every column is alive there."""
    import numpy as np

    single = dict(depths)
    live = np.zeros(law.columns.count)
    rows = []
    for stretch in law.stretches(single, lengths):
        before = live.copy()
        for _, delta in stretch.moments:
            _move(live, delta)
            rows.append(live.copy())
        _move(live, stretch.rest)
        if stretch.repeats is not None:
            live += (live - before) * (single[stretch.repeats] - law.KEPT_LAYERS)
    return np.unique(np.array(rows), axis=0)


def _move(live: Any, delta: Sequence[tuple[int, int, int]]) -> None:
    for column, coefficient, _ in delta:
        live[column] += coefficient


def _values(law: Law, arrays: Mapping[str, Any], jobs: int) -> Any:
    """Bytes of every column of the law, for each job."""
    import numpy as np

    full: dict[str, Any] = with_derived(arrays, law.columns.names)
    found = np.empty((law.columns.count, jobs))
    for monomial, at in law.columns.monomials.items():
        found[at] = _product(monomial, full)
    for size, at in law.columns.odd.items():
        found[at] = np.rint(sum(coefficient * _product(monomial, full) for coefficient, monomial in size))
    return found


def _product(monomial: Sequence[tuple[str, int]], dims: Mapping[str, Any]) -> Any:
    value: Any = 1.0
    for name, exponent in monomial:
        value = value * dims[name] ** exponent
    return value
