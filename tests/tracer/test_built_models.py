"""Models of transformers as programs use them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from preflight.tracer import models

GPT2 = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 32}


def test_a_decoder_that_classifies_has_a_token_for_padding() -> None:
    """Without one it refuses batches, so that every program sets it."""
    model = {"architecture": "gpt2", "config": GPT2, "task": "sequence-classification"}
    assert models.build(model, {"weights": "fp32"}).config.pad_token_id == 0
