"""Reading formulas out of byte counts: dimensions get prime values, so that the factors of a size name them.

A family's named dimensions (h, a, k, d, ...) are products of base variables, each of which is a prime at a probe
point. A storage's bytes then factor in one way only. A size that does not factor is a sum (b(s+1) padded labels, (a +
2k) d fused projections) or a rounding (memory-efficient attention pads its logsumexp to 32): found by splitting off
monomials, or by dividing a rounded length out, and accepted only if it holds at every probe point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from msgspec import Struct

from preflight.memory.device.families.vision import TOKEN_FACTORS
from preflight.memory.device.law.sizes import ROUNDINGS, Monomial, Size, number, round_up

PRIMES = tuple(n for n in range(11, 2000) if all(n % p for p in range(2, int(n**0.5) + 1)))
_SMALLEST_SIDE = 59
_SIDES = 5


class ProbePoint(Struct, frozen=True):
    """One probe: the values of base variables (primes) and of named dimensions (products of them)."""

    base: Mapping[str, int]
    dims: Mapping[str, int]


class Basis(Struct, frozen=True):
    """How named dimensions are made of base variables.

    `named`: dimension -> (constant, {base variable: exponent}). The matrix of exponents must be square and invertible.
    `lengths`: dimensions whose roundings kernels may use.
    """

    named: Mapping[str, tuple[int, Mapping[str, int]]]
    lengths: tuple[str, ...]

    def point(self, primes: Mapping[str, int]) -> ProbePoint:
        dims = {}
        for name, (constant, exponents) in self.named.items():
            value = constant
            for variable, exponent in exponents.items():
                value *= primes[variable] ** exponent
            dims[name] = value
        return ProbePoint(dict(primes), dims)

    def rename(self, coefficient: Fraction, exponents: Mapping[str, int]) -> tuple[Fraction, Monomial] | None:
        """A product of base variables as a product of named dimensions; None where no whole exponents do it."""
        left = {v: Fraction(e) for v, e in exponents.items() if e}
        powers: dict[str, Fraction] = {}
        names = list(self.named)
        while left:
            # A triangular basis: some dimension holds a variable that no other remaining dimension holds.
            for name in names:
                own = [v for v in self.named[name][1] if all(v not in self.named[o][1] for o in names if o != name)]
                if own:
                    power = left.get(own[0], Fraction(0)) / self.named[name][1][own[0]]
                    powers[name] = power
                    for variable, e in self.named[name][1].items():
                        left[variable] = left.get(variable, Fraction(0)) - power * e
                    names.remove(name)
                    break
            else:
                return None
            left = {v: e for v, e in left.items() if e}
        if any(p.denominator != 1 for p in powers.values()):
            return None
        for name, power in powers.items():
            coefficient /= Fraction(self.named[name][0]) ** int(power)
        return coefficient, tuple(sorted((n, int(p)) for n, p in powers.items() if p))


def factor(nbytes: int, point: ProbePoint) -> tuple[int, dict[str, int]] | None:
    """(coefficient, exponents of base variables); None where a foreign prime is left over."""
    exponents: dict[str, int] = {}
    for variable, prime in point.base.items():
        while nbytes % prime == 0:
            nbytes //= prime
            exponents[variable] = exponents.get(variable, 0) + 1
    rest = nbytes
    for small in (2, 3, 5, 7):
        while rest % small == 0:
            rest //= small
    return (nbytes, exponents) if rest == 1 else None


@lru_cache
def patch_sides(tokens: int) -> dict[int, int]:
    """Primes q -> the prime (q^2 + tokens) / TOKEN_FACTORS[tokens]: images of q x q patches have tokens of one new
    prime."""
    if tokens == 0:  # the patches themselves: no other prime
        return dict.fromkeys([q for q in PRIMES if q >= _SMALLEST_SIDE][:_SIDES], 0)
    factor = TOKEN_FACTORS[tokens]
    found: dict[int, int] = {}
    for q in PRIMES:
        whole = (q * q + tokens) // factor
        if q >= _SMALLEST_SIDE and all(whole % p for p in range(2, int(whole**0.5) + 1)):
            found[q] = whole
        if len(found) == _SIDES:
            break
    return found


class MonomialReader:
    """Turns the byte counts that one event has at all probe points into a size."""

    def __init__(self, basis: Basis, points: Sequence[ProbePoint]) -> None:
        self.basis, self.points = basis, points
        self._known: dict[tuple[int, ...], Size] = {}
        self._monomials: dict[Monomial, set[Fraction]] = {}

    def size(self, values: tuple[int, ...]) -> Size | None:
        """The formula, or None where none was found. Call `learn` with all events first."""
        if values not in self._known:
            term = self._monomial(values)
            if term is not None:
                return ((number(term[0]), term[1]),) if term[0] else ()
            found = self._shifted(values) or self._rounded(values) or self._scaled(values) or self._sum(values)
            if found is None:
                return None
            self._known[values] = found
        return self._known[values]

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Read every event that is a single monomial; sums are then looked for among these."""
        for values in set(all_values):
            term = self._monomial(values)
            if term is not None:
                self._known[values] = ((number(term[0]), term[1]),) if term[0] else ()
                self._monomials.setdefault(term[1], set()).add(term[0])

    def _monomial(self, values: Sequence[int | Fraction]) -> tuple[Fraction, Monomial] | None:
        if all(v == values[0] for v in values):
            return Fraction(values[0]), ()
        found: tuple[Fraction, Monomial] | None = None
        for value, point in zip(values, self.points, strict=True):
            value = Fraction(value)
            if value <= 0 or value.denominator not in (1, 2, 4, 8):
                return None
            factored = factor(value.numerator, point)
            if factored is None:
                return None
            term = self.basis.rename(Fraction(factored[0], value.denominator), factored[1])
            if term is None or (found is not None and term != found):
                return None
            found = term
        return found

    def _scaled(self, values: tuple[int, ...]) -> Size | None:
        """A multiple of a sum that is known already: (a + 2k) d times the width, times the tokens, times a rank."""
        for other, size in self._known.items():
            if len(size) < 2:
                continue
            ratios = [Fraction(v, o) for v, o in zip(values, other, strict=True)]
            over = self._monomial([r.numerator for r in ratios])
            under = self._monomial([r.denominator for r in ratios])
            if over is None or under is None:
                continue
            powers = dict(over[1])
            for name, exponent in under[1]:
                powers[name] = powers.get(name, 0) - exponent
            scaled = []
            for coefficient, monomial in size:
                product = {**dict(monomial)}
                for name, exponent in powers.items():
                    product[name] = product.get(name, 0) + exponent
                times = Fraction(coefficient).limit_denominator(64) * over[0] / under[0]
                scaled.append((number(times), tuple(sorted((n, e) for n, e in product.items() if e))))
            return tuple(scaled)
        return None

    def _shifted(self, values: tuple[int, ...]) -> Size | None:
        """A length plus or minus one: padded labels, a key-value cache after one more token."""
        for length in self.basis.lengths:
            for shift in (1, -1):
                divided = [Fraction(v, p.dims[length] + shift) for v, p in zip(values, self.points, strict=True)]
                term = self._monomial(divided)
                if term is not None:
                    powers = dict(term[1])
                    longer = tuple(sorted({**powers, length: powers.get(length, 0) + 1}.items()))
                    return ((number(term[0]), longer), (number(shift * term[0]), term[1]))
        return None

    def _rounded(self, values: tuple[int, ...]) -> Size | None:
        for length in self.basis.lengths:
            for multiple in ROUNDINGS:
                name = f"{length}{multiple}"
                padded = [round_up(point.dims[length], multiple) for point in self.points]
                divided = [Fraction(v, p) for v, p in zip(values, padded, strict=True)]
                term = self._monomial(divided)
                if term is not None:
                    return ((number(term[0]), tuple(sorted((*term[1], (name, 1))))),)
        return None

    def _sum(self, values: tuple[int, ...], depth: int = 2) -> Size | None:
        for monomial, coefficients in self._monomials.items():
            at = [self._at(monomial, p) for p in self.points]
            for coefficient in sorted(coefficients | {Fraction(n) for n in (1, 2, 4, 8, 16)}, reverse=True):
                rest = tuple(v - coefficient * a for v, a in zip(values, at, strict=True))
                sign = -1 if all(r < 0 for r in rest) else 1  # (t - 1) positions: a term taken away
                if any(sign * r <= 0 for r in rest):
                    continue
                term = self._monomial([sign * r for r in rest])
                if term is not None:
                    return ((number(coefficient), monomial), (number(sign * term[0]), term[1]))
        return self._triple(values) if depth > 1 else None

    def _triple(self, values: tuple[int, ...]) -> Size | None:
        for monomial, coefficients in self._monomials.items():
            at = [self._at(monomial, p) for p in self.points]
            for coefficient in sorted(coefficients, reverse=True):
                rest = tuple(v - coefficient * a for v, a in zip(values, at, strict=True))
                if all(r > 0 and r == int(r) for r in rest):
                    found = self._sum(tuple(int(r) for r in rest), depth=1)
                    if found is not None:
                        return ((number(coefficient), monomial), *found)
        return None

    @staticmethod
    def _at(monomial: Monomial, point: ProbePoint) -> Fraction:
        value = Fraction(1)
        for name, exponent in monomial:
            value *= Fraction(point.dims[name]) ** exponent
        return value
