"""Amounts and jobs in words."""

from __future__ import annotations

import pytest

from preflight.vocabulary.job import build
from preflight.vocabulary.words import GIB, MIB, at_most, describe, gib


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (int(23.5 * GIB), "23.5 GiB"),
        (8_000_000_000, "7.45 GiB"),
        (28 * GIB, "28 GiB"),
        (2**30, "1 GiB"),
        (int(0.58 * GIB), "593.9 MiB"),
        (178 * MIB, "178 MiB"),
        (11_586_765, "11.1 MiB"),
        (1_153_434, "1.1 MiB"),
        (31_775, "31 KiB"),
        (512, "512 bytes"),
        (0, "0 bytes"),
    ],
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert gib(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (int(1.999 * GIB), "1.99 GiB"),
        (int(1.19 * MIB), "1.1 MiB"),
        (10 * MIB, "10 MiB"),
        (31_775, "31 KiB"),
    ],
)
def test_what_is_said_to_fit_is_cut_and_not_rounded(size: int, text: str) -> None:
    assert at_most(size) == text


def test_a_job_in_words() -> None:
    job = build(
        {
            "model.name": "bert-large-uncased",
            "train.batch_size": 48,
            "train.seq_len": 480,
            "train.precision": "bf16-mixed",
        }
    )
    assert describe(job) == "bert-large-uncased, batch 48 x 480, bf16-mixed, adamw (foreach)"
