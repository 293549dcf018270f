"""How many examples a property is tried with: all of them where .ci/run asks for it, a quarter otherwise."""

from __future__ import annotations

import os

ALL = os.environ.get("PREFLIGHT_ALL_EXAMPLES") == "1"


def examples(most: int) -> int:
    """For hypothesis' `max_examples`."""
    return most if ALL else most // 4
