"""Parameters without elements: adapters that train no row."""

from __future__ import annotations

from typing import cast

from preflight.memory.device.fit import make
from preflight.memory.device.fit.make import SizeReader


def test_a_parameter_without_elements_takes_no_memory() -> None:
    """peft's TrainableTokensConfig without `token_indices`."""
    trace = {"parameters": [("wte.trainable_tokens_delta", 0, 0, True)]}
    found = make._parameters(trace, [(0, 0)], cast(SizeReader, None), {})
    assert found.outside == ()
