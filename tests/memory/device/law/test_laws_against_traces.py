"""Shipped laws against direct traces, to the byte: sampled laws of every family at random dimensions and depths."""

from __future__ import annotations

import random
from typing import Any

import pytest
from law_keys import from_key

from preflight.memory.device.families import FAMILIES, GROUPED, Family
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law

pytest.importorskip("torch")

SHIPPED = ("llama", "qwen2", "gemma2", "phi3", "gpt2", "bert", "roberta", "distilbert", "deberta-v2", "t5", "vit",
           "clip", "whisper")  # fmt: skip
"""Families with laws of every kind; test_families_traces.py has all."""
QUICK = {"llama", "gpt2", "bert", "vit"}
CASES = [
    pytest.param(name, seed, marks=() if seed == 1 and name in QUICK else pytest.mark.slow)
    for seed in (1, 2, 3)
    for name in SHIPPED
]


def random_dims(family: Family, rng: random.Random, adapters: bool, grouped: bool = True) -> dict[str, int]:
    """Dimensions of no special kind, of a model that its code accepts."""
    dims = {name: rng.randint(2, 40) for name in family.named}
    for name in ("d", "dt"):
        dims[name] = 8 * rng.randint(1, 9)
    for depth in set(family.depths.values()):
        dims[depth] = rng.randint(4, 11)
    dims |= {"b": rng.randint(2, 7), "V": rng.randint(50, 900), "f": rng.randint(9, 300)}
    if "s" in dims:
        dims["s"] = rng.randint(33, 150)
    if "t" in dims:
        dims["t"] = rng.randint(9, 60)
    if "P" in dims:
        dims["P"] = 200
    if "k" in dims:  # grouped heads: k < a, and the width a multiple of the heads
        dims["a"] = dims["k"] * (rng.randint(2, 4) if grouped else 1)
        dims["h"] = dims["a"] * rng.randint(2, 9)
    if "n" in dims:
        side, dims["p"] = rng.randint(2, 9), rng.randint(2, 9)
        dims |= {"n": side * side, "m": side * side + 1, "i": side * dims["p"]}
    if adapters:
        dims["r"] = rng.randint(2, 40)
    return dims


def traced_peak(reply: dict[str, Any]) -> int:
    events = reply["events"]
    live = peak = 0
    for value, _ in events:
        live += value if value >= 0 else -events[-1 - value][0]
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_law_is_the_trace(name: str, seed: int) -> None:
    from preflight.memory.device.fit.make import request
    from preflight.tracer import steps

    family = FAMILIES[name]
    rng = random.Random(f"{name} {seed}")
    keys = store.keys(name)
    assert keys, f"no laws are shipped for {name}"
    key = rng.choice([k for k in keys if k.split(" ")[1] == "train"])
    task, kind, setup, structure = from_key(key, family)
    made = store.load(store.LawKey(name, key))
    assert made is not None
    dims = random_dims(family, rng, bool(setup.peft), bool(structure.get(GROUPED, True)))
    asked = request(family, task, kind, setup, structure, dims)

    reply = steps.trace(asked)
    assert Law(made.tape).peak(dims).bytes == traced_peak(reply), key
    elements = sum(n for n, _, _ in made.parameters.sizes(made.tape.depths, dims))
    assert elements == sum(row[2] for row in reply["parameters"]), key

    accumulated = steps.trace({**asked, "accumulated": True})
    assert Law(made.tape, accumulating=True).peak(dims).bytes == traced_peak(accumulated), f"accumulating: {key}"


@pytest.mark.parametrize("name", SHIPPED)
def test_validation_law_is_the_trace(name: str) -> None:
    from preflight.memory.device.fit.make import request
    from preflight.tracer import steps

    family = FAMILIES[name]
    rng = random.Random(f"{name} eval")
    key = rng.choice([k for k in store.keys(name) if k.split(" ")[1] in ("eval", "generate")])
    task, kind, setup, structure = from_key(key, family)
    made = store.load(store.LawKey(name, key))
    assert made is not None
    dims = random_dims(family, rng, bool(setup.peft), bool(structure.get(GROUPED, True)))
    reply = steps.trace(request(family, task, kind, setup, structure, dims))
    assert Law(made.tape).peak(dims).bytes == traced_peak(reply), key
