"""Settings of PyTorch's allocator, as a variable of the environment has them."""

from __future__ import annotations

import pytest

from preflight.vocabulary.notation import allocator_settings


@pytest.mark.parametrize(
    "text",
    ["", "expandable_segments", "expandable_segments:maybe", "max_split_size_mb:0", "per_process_memory_fraction:1.5",
     "per_process_memory_fraction:0", "backend:cudaMallocAsync"],
)  # fmt: skip
def test_what_torch_refuses_or_this_does_not_know_is_left_out(text: str) -> None:
    assert list(allocator_settings(text)) == []


def test_the_fields() -> None:
    text = "expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:.8,"
    text += "per_process_memory_fraction:0.5"
    assert dict(allocator_settings(text)) == {
        "train.allocator.expandable_segments": True, "train.allocator.max_split_size_mb": 128,
        "train.allocator.garbage_collection_threshold": 0.8, "train.allocator.per_process_fraction": 0.5,
    }  # fmt: skip
