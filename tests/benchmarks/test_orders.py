"""Lengths in many orders: what is drawn, and that the order alone moves what is reserved."""

from __future__ import annotations

from statistics import mean

from benchmarks.accuracy.orders import LONGEST, MEAN, SHORTEST, lengths, nearest, reserved
from benchmarks.accuracy.truth import Run

FIELDS = {"model.name": "gpt2", "task": "causal-lm", "train.batch_size": 4, "train.seq_len": 512,
          "train.sequences": "dynamic", "train.optimizer": "adamw", "machine.gpu": "A100-80GB"}  # fmt: skip


def test_lengths_are_within_bounds_and_average_what_is_stated() -> None:
    drawn = [length for seed in range(60) for length in lengths(LONGEST, seed)]
    assert min(drawn) >= SHORTEST
    assert max(drawn) <= LONGEST
    assert abs(mean(drawn) / MEAN - 1) < 0.05
    assert max(lengths(512, 0)) <= 512


def test_the_order_moves_what_is_reserved() -> None:
    found = reserved(Run("one", "one", "decoders, full", FIELDS, {}), 3)
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_the_nearest_that_an_estimate_can_be() -> None:
    assert nearest([("a", "4.0", "9, 10, 11"), ("b", "4.0", "5, 10, 10")]) == 0.5
    assert nearest([("a", "4.0", "10, 10, 10"), ("b", "4.0", "")]) == 0.0
