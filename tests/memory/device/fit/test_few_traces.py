"""Reading sizes from few points: whatever is one term, or two, comes back exactly."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from preflight.memory.device.fit.few_traces import DEGREES, POINTS, SparseReader
from preflight.memory.device.law.sizes import Size, evaluate

MONOMIALS = [
    tuple(sorted((name, e) for name, e in zip(("b", "u", "r"), powers, strict=True) if e))
    for powers in product(*(DEGREES[name] for name in ("b", "u", "r")))
]


def read(size: Size, points: int) -> Size | None:
    reader = SparseReader(("b", "u", "r"), POINTS[:points])
    return reader.size(tuple(evaluate(size, point) for point in POINTS[:points]))


@pytest.mark.parametrize("monomial", MONOMIALS)
@pytest.mark.parametrize("coefficient", [1, 77, 983_040])
def test_one_term_takes_two_points(monomial: tuple[tuple[str, int], ...], coefficient: int) -> None:
    assert read(((coefficient, monomial),), 2) == ((coefficient, monomial),)


@pytest.mark.parametrize(("first", "second"), list(combinations(MONOMIALS, 2)))
def test_two_terms_take_three_points(first: tuple[tuple[str, int], ...], second: tuple[tuple[str, int], ...]) -> None:
    found = read(((1_536, first), (236_544, second)), 3)
    assert found is not None
    check = POINTS[3]  # where it was not looked
    assert evaluate(found, check) == evaluate(((1_536, first), (236_544, second)), check)


def test_a_padded_side_takes_three_points() -> None:
    padded: Size = ((256 * 64**2, (("b", 1), ("u", 2))), (256 * 128, (("b", 1), ("u", 1))), (256, (("b", 1),)))
    assert read(padded, 3) == padded
    assert read(padded, 2) != padded


def test_what_is_no_such_sum_is_not_read() -> None:
    reader = SparseReader(("b", "u", "r"), POINTS[:3])
    assert reader.size(tuple(point["u"] ** 3 + point["b"] for point in POINTS[:3])) is None
