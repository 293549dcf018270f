"""What the projects of all tests say, as it was when the golden dumps were written."""

from __future__ import annotations

import pytest
from golden_parts import differs, one_of

PARTS = 8


@pytest.mark.parametrize("part", one_of(PARTS))
def test_what_is_read_is_what_was_read(part: int) -> None:
    assert not differs("readings", part, PARTS)
