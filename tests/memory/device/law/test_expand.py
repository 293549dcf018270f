"""Stacks of one, two and three layers: a law's tape at so small a depth is the direct trace."""

from __future__ import annotations

import random

import pytest
from law_keys import from_key
from test_families_traces import WITH_LAWS, draw, law_of, traced_peak

from preflight.memory.device.families import FAMILIES
from preflight.memory.device.law import store
from preflight.memory.device.law.expand import at_depth, places
from preflight.memory.device.law.law import Law

pytest.importorskip("torch")

ONE_LAYER_NEAR = {"t5", "mt5", "umt5", "mpnet"}
"""Families whose single layer is not to the byte: what it keeps for the layers after it (relative positions, their
gradient) it shares with nobody there."""
NEAR = 0.05
FAST = ("llama", "bert", "electra")


def test_a_layer_stands_where_the_ends_of_its_stack_are() -> None:
    assert places(0, 1) == [0, 4]
    assert [places(layer, 2) for layer in range(2)] == [[0, 3], [1, 4]]
    assert [places(layer, 3) for layer in range(3)] == [[0], [1, 3], [4]]


def check(name: str, depth: int, seed: int) -> None:
    """One law of a family, drawn by chance; where it has two stacks the other one has a depth of its own."""
    from preflight.memory.device.fit.make import request
    from preflight.tracer import steps

    family, rng = FAMILIES[name], random.Random(f"{name} {depth} {seed}")
    key = rng.choice(store.keys(name))
    task, kind, setup, structure = from_key(key, family)
    dims = draw(family, structure, rng, bool(setup.peft))
    first, *rest = rng.sample(sorted(set(family.depths.values())), len(set(family.depths.values())))
    dims |= {first: depth, **{other: rng.randint(1, 5) for other in rest}}
    traced = traced_peak(steps.trace(request(family, task, kind, setup, structure, dims)))
    peak = Law(law_of(name, key).tape).peak(dims).bytes
    if name in ONE_LAYER_NEAR and min(dims[d] for d in family.depths.values()) == 1:
        assert abs(peak - traced) <= NEAR * traced, (key, dims)
    else:
        assert peak == traced, (key, dims)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", FAST)
def test_a_short_stack_is_the_trace(name: str, depth: int) -> None:
    check(name, depth, 0)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", WITH_LAWS)
def test_short_stacks_are_the_traces(name: str, depth: int) -> None:
    check(name, depth, 1)


@pytest.mark.parametrize(
    "each", [pytest.param(12, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("name", WITH_LAWS)
def test_every_law_reaches_down_to_one_layer(name: str, each: int) -> None:
    family = FAMILIES[name]
    for key in store.keys(name)[::each]:
        at_depth(law_of(name, key).tape, dict.fromkeys(family.depths.values(), 1))  # raises NotRegular where not
