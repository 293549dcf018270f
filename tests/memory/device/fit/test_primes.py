"""Formulas read out of byte counts."""

from __future__ import annotations

import random

import pytest

from preflight.memory.device.families import FAMILIES
from preflight.memory.device.fit.make import basis_of, probe
from preflight.memory.device.fit.primes import MonomialReader
from preflight.memory.device.law.sizes import evaluate, parse_monomial, show, with_derived

LLAMA = FAMILIES["llama"]
POINTS = [probe(LLAMA, turn, 6)[0] for turn in range(3)]
KNOWN = ["2 b s h", "4 a d h", "2 b s a d", "4 b s V", "8 b", "4 d k h"]


def _values(text: str) -> tuple[int, ...]:
    """`text` ("2 b s h + 8 b") at the probe points."""
    found = []
    for point in POINTS:
        total = 0
        for term in text.split(" + "):
            coefficient, _, monomial = term.partition(" ")
            names = {name for name, _ in parse_monomial(monomial)}
            dims = with_derived(point.dims, names)
            total += evaluate(((int(coefficient), parse_monomial(monomial)),), dims)
        found.append(total)
    return tuple(found)


@pytest.mark.parametrize(
    "text",
    [
        "2 b s h",
        "4 a b s",
        "8",
        "1 b s",
        "4 a b s32",
        "2 b s s8",
        "8 b s + 8 b",
        "8 b s + -8 b",
        "2 a d h + 4 d h k",
    ],
)
def test_formulas_are_read_back(text: str) -> None:
    reader = MonomialReader(basis_of(LLAMA, ()), POINTS)
    reader.learn([_values(known) for known in KNOWN])
    size = reader.size(_values(text))
    assert size is not None
    rng = random.Random(text)
    for _ in range(5):
        dims = {name: rng.randint(1, 999) for name in LLAMA.named}
        names = {n for _, m in size for n, _ in m}
        expected = 0
        for term in text.split(" + "):
            coefficient, _, monomial = term.partition(" ")
            pairs = parse_monomial(monomial)
            expected += evaluate(((int(coefficient), pairs),), with_derived(dims, {n for n, _ in pairs}))
        assert evaluate(size, with_derived(dims, names)) == expected, show(size)


def test_what_is_no_formula_is_not_invented() -> None:
    reader = MonomialReader(basis_of(LLAMA, ()), POINTS)
    reader.learn([_values(known) for known in KNOWN])
    assert reader.size((1_000_003, 1_000_033, 1_000_037)) is None


def test_no_variable_has_one_value_at_two_probes() -> None:
    """A dimension that stays the same would hide in a coefficient."""
    for family in FAMILIES.values():
        points = [probe(family, turn, 6)[0].base for turn in range(4)]
        for variable in points[0]:
            assert len({point[variable] for point in points}) == 4, (family.name, variable)
        for point in points:
            assert len(set(point.values())) == len(point), family.name
        for length in family.lengths:
            rounded = {-(-probe(family, turn, 6)[0].dims[length] // 32) for turn in range(4)}
            assert len(rounded) == 4, (family.name, length)
