"""Every family's laws against direct traces, to the byte: random setups of random small models."""

from __future__ import annotations

import random
from typing import Any

import pytest
from law_keys import from_key

from preflight.memory.device.families import FAMILIES, Family
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.sizes import evaluate, with_derived
from preflight.memory.device.workloads.remote_code import SAME_CODE

pytest.importorskip("torch")

WITH_LAWS = [name for name in FAMILIES if name not in SAME_CODE and store.keys(name)]
CONFIGURATIONS = 50
SLOW = 2
"""Of these, those that every run of all checks makes; the others take an hour."""
FAST = ("qwen3", "mixtral", "falcon-grouped", "electra", "siglip")
RANGES = {"b": (2, 4), "s": (3, 120), "t": (3, 60), "V": (60, 700), "f": (3, 200), "F": (3, 200), "P": (125, 300),
          "e": (1, 6), "E": (1, 6), "X": (4, 12), "K": (2, 4), "R": (1, 3), "p": (2, 9), "q": (2, 7), "g": (2, 5),
          "k": (2, 4), "u": (1, 6), "B": (8, 40), "r": (2, 20)}  # fmt: skip
"""Base variables of families (see preflight.memory.device.families) -> what is drawn for them."""


def draw(family: Family, structure: dict[str, object], rng: random.Random, adapters: bool) -> dict[str, int]:
    """Dimensions of a small model of a family, none of which coincide but those that the structure says."""
    free = family.at(structure)
    while True:
        base = {v: rng.randint(*RANGES.get(v, (2, 9))) for _, made in free.named.values() for v in made}
        dims = {}
        for name, (constant, exponents) in free.named.items():
            dims[name] = constant
            for variable, exponent in exponents.items():
                dims[name] *= base[variable] ** exponent
        if "n" in dims:
            dims |= {"m": dims["n"] + family.tokens, "i": base["q"] * dims["p"]}
        dims |= {depth: rng.randint(2, 6) for depth in sorted(set(family.depths.values()))}
        dims |= {name: _length(name, dims[name], rng) for name in ("b", "s", "t") if name in dims}
        if adapters:
            dims["r"] = rng.randint(2, 20)
        apart = all(structure[one.name] != one.otherwise or not one.holds(dims) for one in family.coincidences)
        if apart and dims.get("R", 0) <= dims.get("d", 0):
            return dims


def _length(name: str, drawn: int, rng: random.Random) -> int:
    """A batch of one, and a length that is a whole multiple of 8, in every third draw: there tapes are others."""
    if rng.random() < 2 / 3:
        return drawn
    return 1 if name == "b" else max(8, drawn // 8 * 8)


def traced_peak(reply: dict[str, Any]) -> int:
    events = reply["events"]
    live = peak = 0
    for value, _ in events:
        live += value if value >= 0 else -events[-1 - value][0]
        peak = max(peak, live)
    return peak


def law_of(name: str, key: str) -> MadeLaw:
    made = store.load(store.LawKey(name, key))
    assert made is not None
    return made


def check(name: str, seed: int) -> None:
    """One law of a family, drawn by chance, is the trace of one model, drawn by chance."""
    from preflight.memory.device.fit.make import request
    from preflight.tracer import steps

    family, rng = FAMILIES[name], random.Random(f"{name} {seed}")
    key = rng.choice(store.keys(name))
    task, kind, setup, structure = from_key(key, family)
    made = law_of(name, key)
    dims = draw(family, structure, rng, bool(setup.peft))
    if kind == "generate" and "t" in dims and dims["t"] % 8 in (0, 7):
        dims["t"] += 2  # relative positions of T5 are padded along t and t + 1, which a law has as one size
    asked = request(family, task, kind, setup, structure, dims)
    reply = steps.trace(asked)

    assert Law(made.tape).peak(dims).bytes == traced_peak(reply), (key, dims)
    elements = sum(n for n, _, _ in made.parameters.sizes(made.tape.depths, dims))
    assert elements == sum(row[2] for row in reply["parameters"]), (key, dims)
    names = {n for _, monomial in made.parameters.buffers for n, _ in monomial}
    held = evaluate(made.parameters.buffers, with_derived(dims, names))
    assert held == sum(size for _, size in reply["buffers"]), (key, dims)
    if kind == "train":
        accumulated = steps.trace({**asked, "accumulated": True})
        assert Law(made.tape, accumulating=True).peak(dims).bytes == traced_peak(accumulated), (key, dims)


@pytest.mark.parametrize("name", FAST)
def test_a_law_is_the_trace(name: str) -> None:
    check(name, 0)


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, SLOW + 1)),
        *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(SLOW + 1, CONFIGURATIONS + 1)),
    ],
)
@pytest.mark.parametrize("name", WITH_LAWS)
def test_laws_are_the_traces(name: str, seed: int) -> None:
    check(name, seed)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_dimensions_come_back_from_the_config_they_make(name: str) -> None:
    """A family's two directions agree, lengths apart, and where dimensions coincide too."""
    family = FAMILIES[name]
    usual = family.usual
    variants = [usual, *({**usual, one.name: one.value} for one in family.coincidences)]
    for number, structure in enumerate(variants):
        dims = draw(family, structure, random.Random(f"{name} {number}"), False)
        found = family.dims({**family.at(structure).config(dims), **family.switches(structure)})
        assert {k: found[k] for k in dims if k in found} == {k: v for k, v in dims.items() if k in found}
        assert family.coinciding(found) == {one.name: structure[one.name] for one in family.coincidences}
