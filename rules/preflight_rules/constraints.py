"""The user's own invariants, as far as rules need them: which are violated, and how low a vocabulary may go."""

from __future__ import annotations

from preflight.rule import Case


def lower_bound(case: Case) -> int:
    return 1


def violations(case, rule):
    return ()
