"""What loaders hand out is measured once per sample, and goes to the phase that takes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import dataloader

from preflight.guard import loaders
from preflight.guard.loaders import BATCHES, Samples, size_of


class Own:
    """An object of a program's own."""


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(4, 8), 128),
        ([torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)], 160),
        ({"image": torch.zeros(4, 2), "name": ["a", "b", "c", "d"], "rest": (None, 1.0)}, 32),
        ([1, 2], None),
        ([torch.zeros(4), Own()], None),
        ([[[[[[[[[[torch.zeros(4)]]]]]]]]]], None),
    ],
)
def test_bytes_of_a_batch(batch: Any, size: int | None) -> None:
    assert size_of(batch) == size


def iterator(batch_size: int | None) -> Any:
    data = torch.utils.data.TensorDataset(torch.zeros(64, 8))
    return iter(torch.utils.data.DataLoader(data, batch_size=batch_size))


def test_a_sample_is_of_the_phase_that_takes_it() -> None:
    samples, one = Samples(), iterator(4)
    assert not samples.used("forward")
    samples.seen(one, [torch.zeros(4, 8)])
    assert samples.used("forward")
    samples.seen(one, [torch.zeros(2, 8)])  # the last one of an epoch is not full
    assert not samples.used("forward")
    samples.seen(iterator(2), [torch.zeros(2, 32)])
    assert samples.used("validation")
    assert samples.sizes == {"sample_bytes": 32, "validation_sample_bytes": 128}


def test_only_the_first_batches_are_looked_at() -> None:
    samples, one = Samples(), iterator(4)
    for _ in range(BATCHES):
        samples.seen(one, [torch.zeros(4, 1)])
    samples.seen(one, [torch.zeros(4, 100)])
    samples.used("forward")
    assert samples.sizes == {"sample_bytes": 4}


def test_a_loader_that_does_not_make_batches_says_nothing() -> None:
    samples = Samples()
    samples.seen(iterator(None), [torch.zeros(8)])
    assert not samples.used("forward")


def test_a_loader_hands_out_what_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", dataloader._BaseDataLoaderIter.__next__)
    loaders.watch(dataloader)
    assert len(list(iterator(4))) == 16
