"""What a report asks for: in words that say what the field is."""

from __future__ import annotations

import pytest

from preflight.engine.doubts import STATES, TYPES
from preflight.engine.questions import WORDS

ASKED = (*STATES, *TYPES, "model.name", "model.architecture", "parallel.trials_per_gpu")


@pytest.mark.parametrize("name", ASKED)
def test_a_field_that_decides_a_verdict_is_asked_for_in_words(name: str) -> None:
    assert WORDS[name].endswith(("?", ")"))
    assert name not in WORDS[name]
