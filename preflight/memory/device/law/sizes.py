"""Sizes as formulas: sums of terms, each a coefficient times a product of named dimensions.

The names of dimensions (b batch, s length, h width, ...) are explained in `families/__init__.py`. Models without a
family have some more: u sides of 64 pixels, k sides of 32 pixels, i the side in pixels, w frames of sound, o boxes,
r rank of adapters, L and M the depths of their stacks.

A monomial is a tuple of (dimension, exponent) pairs, sorted by name; a size is a tuple of (coefficient, monomial).
Derived dimensions are functions of others: `s8` is s rounded up to a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from preflight.vocabulary.caches import regex

Monomial: TypeAlias = "tuple[tuple[str, int], ...]"
Size: TypeAlias = "tuple[tuple[int | float, Monomial], ...]"

ROUNDINGS = (8, 16, 32)
"""Multiples that kernels pad a length to: 8 (attention bias), 32 (memory-efficient attention's logsumexp)."""

_DERIVED = regex(r"([a-zA-Z]+)(8|16|32)$")


def round_up(x: int, multiple: int) -> int:
    """The next multiple at or above x."""
    return -(-x // multiple) * multiple


def rounded(name: str) -> str | None:
    """The dimension that a derived one is a rounding of; None: the name is no rounding."""
    match = _DERIVED.match(name)
    return match[1] if match else None


def with_derived(dims: Mapping[str, int], names: frozenset[str] | set[str]) -> dict[str, int]:
    """`dims` with those of `names` added that are roundings of a dimension in it. Raises KeyError for any other."""
    full = dict(dims)
    for name in names:
        if name not in full:
            match = _DERIVED.match(name)
            if match is None or match[1] not in dims:
                raise KeyError(name)
            full[name] = round_up(dims[match[1]], int(match[2]))
    return full


def evaluate(size: Size, dims: Mapping[str, int]) -> int:
    """Bytes of a size at dimensions (derived ones included)."""
    total = 0.0
    for coefficient, monomial in size:
        product = coefficient
        for name, exponent in monomial:
            product = product * dims[name] ** exponent
        total = total + product
    return round(total)


def product(monomial: Monomial, value: int, dims: Mapping[str, int]) -> int:
    """value times the monomial at dims."""
    for name, exponent in monomial:
        value *= dims[name] ** exponent
    return value


def number(x: Fraction) -> int | float:
    """A coefficient as JSON writes it: an integer where it is one."""
    return int(x) if x.denominator == 1 else float(x)


def show(size: Size) -> str:
    """A size as a person writes it: "4 b s V + 8 b"."""
    terms = []
    for coefficient, monomial in size:
        factors = [name if e == 1 else f"{name}^{e}" for name, e in monomial]
        terms.append(" ".join([f"{coefficient:g}" if isinstance(coefficient, float) else str(coefficient), *factors]))
    return " + ".join(terms)


def encode(size: Size) -> list[list[object]]:
    """JSON form: [[coefficient, "b s^2 V"], ...]."""
    return [[c, " ".join(n if e == 1 else f"{n}^{e}" for n, e in m)] for c, m in size]


def decode(data: list[list[object]]) -> Size:
    """The inverse of `encode`."""
    return tuple((c, parse_monomial(str(m))) for c, m in data)  # type: ignore[misc]


def parse_monomial(text: str) -> Monomial:
    """ "b s^2 V" -> (("V", 1), ("b", 1), ("s", 2))."""
    pairs = []
    for factor in text.split():
        name, _, exponent = factor.partition("^")
        pairs.append((name, int(exponent) if exponent else 1))
    return tuple(sorted(pairs))
