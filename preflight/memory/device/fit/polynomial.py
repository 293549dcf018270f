"""Sizes of one model's events as polynomials of its batch and lengths, fitted exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product

from preflight.memory.device.law.sizes import Monomial, Size, number

# Degree of each length in a size: batches and ranks of adapters are linear, lengths at most quadratic (attention
# scores), and so are sides of images (`u`, 64 pixels).
_DEGREES = {"b": 1, "s": 2, "t": 2, "u": 2, "r": 1}
_SCALES = {"b": (2, 3), "s": (64, 96, 160), "t": (32, 128, 192), "u": (8, 16, 24), "r": (8, 16)}
"""Values to trace at: multiples of 32, where kernels round nothing. Rounded sizes (the logsumexp of memory-efficient
attention, 4 bytes per head and position) are then at most 31 positions too small."""
_CHECK = {"b": 5, "s": 224, "t": 256, "u": 32, "r": 24}


def points(lengths: Sequence[str]) -> list[dict[str, int]]:
    """Enough points to determine the polynomial, and one more to check it."""
    grid = product(*(_SCALES[name][: _DEGREES[name] + 1] for name in lengths))
    return [*(dict(zip(lengths, values, strict=True)) for values in grid), {name: _CHECK[name] for name in lengths}]


class PolynomialReader:
    """Solves for the coefficients of every monomial at once (the points form a full grid)."""

    def __init__(self, lengths: Sequence[str], at: Sequence[Mapping[str, int]]) -> None:
        exponents = list(product(*(range(_DEGREES[name] + 1) for name in lengths)))
        self._monomials: list[Monomial] = [
            tuple(sorted((name, e) for name, e in zip(lengths, powers, strict=True) if e)) for powers in exponents
        ]
        matrix = []
        for point in at:
            row = []
            for powers in exponents:
                value = Fraction(1)
                for name, e in zip(lengths, powers, strict=True):
                    value *= Fraction(point[name]) ** e
                row.append(value)
            matrix.append(row)
        self._inverse = solved_rows(matrix)

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Nothing to learn: every size is solved for by itself."""

    def size(self, values: tuple[int, ...]) -> Size | None:
        solved = [sum((a * v for a, v in zip(row, values, strict=True)), Fraction(0)) for row in self._inverse]
        return tuple((number(c), m) for c, m in zip(solved, self._monomials, strict=True) if c)


def solved_rows(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """The inverse of a matrix, by Gauss-Jordan in fractions."""
    n = len(matrix)
    work = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(matrix)]
    for column in range(n):
        pivot = next(r for r in range(column, n) if work[r][column])
        work[column], work[pivot] = work[pivot], work[column]
        head = work[column][column]
        work[column] = [x / head for x in work[column]]
        for r in range(n):
            if r != column and work[r][column]:
                factor = work[r][column]
                work[r] = [x - factor * y for x, y in zip(work[r], work[column], strict=True)]
    return [row[n:] for row in work]
