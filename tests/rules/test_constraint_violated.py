"""Invariants that the user stated."""

from __future__ import annotations

from cases import case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding
from preflight.vocabulary.rule import Case
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Axis, Choices, Const
from preflight_rules.constraint_violated import ConstraintViolated


def findings(case: Case) -> list[Finding]:
    return all_findings(case, ConstraintViolated)


def test_stated_invariants() -> None:
    axis = Axis("d", Choices((1000, 5000)), origin(4))
    settings = Settings(constraints={"vocabulary": "vocab >= d * (l - 1) + 1"})
    constants = {"vocab": Const(10_000, origin(9)), "l": Const(5, origin(8))}
    [finding] = findings(case({}, axes=(axis,), worst={"d": 5000}, constants=constants, settings=settings))
    assert finding.rule == "constraint-violated"
    assert "does not hold for d=5000" in finding.message
    assert finding.origin == origin(9)
    assert {place for place, _ in finding.related} == {origin(4), origin(8)}
    enough = {**constants, "vocab": Const(20_001, origin(9))}
    assert findings(case({}, axes=(axis,), worst={"d": 5000}, constants=enough, settings=settings)) == []
