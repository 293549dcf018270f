"""Which attention a job runs, by the releases that are stated."""

from __future__ import annotations

import pytest

from preflight.memory.device.law.attention import attention
from preflight.vocabulary.job import build


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "sdpa"),
        ({"software.torch": "2.4.0"}, "sdpa"),
        ({"software.torch": "1.13.1"}, "eager"),
        ({"software.torch": "2.0.1+cu118"}, "eager"),
        ({"software.torch": "2.0.1", "train.attention": "sdpa"}, "sdpa"),
        ({"software.torch": "2.0.1", "train.attention": "flash"}, "sdpa"),
    ],
)
def test_a_torch_that_transformers_runs_no_sdpa_with(fields: dict[str, object], expected: str) -> None:
    """transformers asks for torch 2.1.1 before it picks scaled_dot_product_attention by itself."""
    assert attention(build({"model.name": "gpt2", **fields}), None, None)[0] == expected
