"""What is found in examples, in those of every rule, and in public files, as it was when the dumps were written."""

from __future__ import annotations

import golden_cases
import pytest
from golden_parts import differs, one_of

PARTS = 6


@pytest.mark.parametrize("part", one_of(PARTS))
def test_what_is_found_is_what_was_found(part: int) -> None:
    assert not differs("findings", part, PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_public_files_are_judged_as_they_were(part: int) -> None:
    if not golden_cases.has_corpus():
        pytest.skip(f"the public files are not in {golden_cases.CORPUS}: scripts/golden_corpus.py brings them")
    assert not differs("corpus", part, PARTS)
