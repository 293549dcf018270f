"""What the laws of all known models are filed under, and what their processes take, as it was when the dumps were
written."""

from __future__ import annotations

import pytest
from golden_parts import differs

PARTS = 4


def test_every_models_law_is_looked_up_as_it_was() -> None:
    assert not differs("laws")


def test_the_first_models_take_what_they_took() -> None:
    assert not differs("bytes", 0, 12)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_model_takes_what_it_took(part: int) -> None:
    assert not differs("bytes", part, PARTS)
