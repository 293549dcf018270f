"""Many jobs of a law at once: the same peaks as one by one, to the byte."""

from __future__ import annotations

import random

import pytest

from preflight.memory.device.prepare import prepare
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.job import build

bulk = pytest.importorskip("preflight.memory.device.law.bulk_peaks")
pytest.importorskip("numpy")


@pytest.mark.parametrize("accumulating", [False, True])
@pytest.mark.parametrize("name", ["bert-large-uncased", "gpt2-medium", "t5-base"])
def test_bulk_is_the_law(name: str, accumulating: bool) -> None:
    sizes = {"train.batch_size": 2, "train.seq_len": 64, "train.target_len": 32, "train.precision": "bf16-mixed"}
    ready = prepare(build({"model.name": name, **sizes}))
    assert isinstance(ready, PreparedJob)
    law = ready.laws.reading(accumulating, False)
    rng = random.Random(name)
    batches = [rng.randint(1, 300) for _ in range(5000)]
    lengths = [rng.randint(1, 512) for _ in batches]
    found = bulk.peaks(law, {**ready.dims, "b": batches, "s": lengths})
    for at in range(0, len(batches), 271):
        dims = {**ready.dims, "b": batches[at], "s": lengths[at]}
        assert found[at] == law.peak(dims).bytes == law.most(dims)
        backward = frozenset({"backward"})
        assert law.most(dims, backward, True) == law.peak(dims, backward, True).bytes


def test_columns_of_one_length() -> None:
    ready = prepare(build({"model.name": "bert-base-uncased", "train.batch_size": 2, "train.seq_len": 64}))
    assert isinstance(ready, PreparedJob)
    with pytest.raises(ValueError, match="different lengths"):
        bulk.peaks(ready.laws.plain, {**ready.dims, "b": [1, 2], "s": [3]})
