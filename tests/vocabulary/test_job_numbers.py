"""Numbers of a Job have 64 bits: arithmetic with larger ones overflows a float."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from preflight.vocabulary.job import MOST, Data


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    assert Data(sample_bytes=MOST, in_memory_bytes=MOST).sample_bytes == MOST
    for field in ("sample_bytes", "in_memory_bytes", "workers"):
        with pytest.raises(ValidationError, match="less than or equal"):
            Data.model_validate({field: MOST + 1})
