"""Branches of a program share objects: a value of many branches is looked at object by object, not way by way."""

from __future__ import annotations

from typing import cast

from preflight.python.evaluator import Evaluator
from preflight.python.objects import Abstract, Either, Instance, to_expr
from preflight.vocabulary.values import Const, Expr, Op, Ref

DEPTH = 15


def branches(first: Abstract, second: Abstract) -> Either:
    """Two objects at the ends of 2 ** DEPTH ways."""
    value = Either(Ref("0"), first, second)
    for level in range(1, DEPTH):
        value = Either(Ref(str(level)), value, value)
    return value


class Joining:
    """What `on_both_sides` asks of an evaluator."""

    def op(self, operator: str, operands: tuple[Expr, ...]) -> Expr:
        return Op(operator, operands)

    def join(self, condition: Expr, then: Abstract, otherwise: Abstract) -> Abstract:
        return Evaluator.join(cast(Evaluator, self), condition, then, otherwise)


def test_each_object_is_asked_once() -> None:
    asked: list[Abstract] = []

    def name(one: Abstract) -> Abstract:
        asked.append(one)
        return Const(len(asked))

    ev, first, second = cast(Evaluator, Joining()), Instance("A"), Instance("B")
    assert Evaluator.on_both_sides(ev, branches(first, first), name) == Const(1)
    assert asked == [first]
    asked.clear()
    assert Evaluator.on_both_sides(ev, branches(first, second), name) == Op("if", (Ref("0"), Const(1), Const(2)))
    assert asked == [first, second]


def test_an_expression_shares_what_its_branches_share() -> None:
    found = to_expr(branches(Instance("A"), Instance("B")))
    for _ in range(1, DEPTH):
        assert isinstance(found, Op)
        assert found.operands[1] is found.operands[2]
        found = found.operands[1]
