"""Branches of a program share objects: a value of many branches is looked at object by object, not way by way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from preflight.program.bindings import same
from preflight.python.evaluator import Evaluator
from preflight.python.objects import (
    Abstract,
    Container,
    Either,
    Instance,
    Key,
    alternatives,
    has_unknown,
    to_expr,
)
from preflight.python.spread import copy_items
from preflight.vocabulary.budgets import EXPRESSION_NODES
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, evaluate, names, parts, substitute

DEPTH = 40


def branches(first: Abstract, second: Abstract, levels: int = DEPTH) -> Either:
    """Two objects at the ends of 2 ** levels ways."""
    value = Either(Ref("0"), first, second)
    for level in range(1, levels):
        value = Either(Ref(str(level)), value, value)
    return value


class Joining:
    """What `on_both_sides` asks of an evaluator."""

    def step(self, amount: int) -> None:
        """Counts nothing."""

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
    found = to_expr(branches(Instance("A"), Instance("B"), levels=6))
    for _ in range(1, 6):
        assert isinstance(found, Op)
        assert found.operands[1] is found.operands[2]
        found = found.operands[1]


def test_an_expression_with_too_many_ways_is_unknown_and_says_so() -> None:
    found = to_expr(branches(Instance("A"), Instance("B")))
    assert evaluate(found) == Unknown(f"the expression is {EXPRESSION_NODES.over}", Cause.budget)


@dataclass(frozen=True)
class Counted:
    """A leaf of an expression that counts how often it is compared."""

    compared: list[int] = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        self.compared.append(1)
        return isinstance(other, Counted)


def doubled(leaf: Expr) -> Expr:
    for _ in range(40):
        leaf = Op("+", (leaf, leaf))
    return leaf


def test_a_part_that_stands_in_many_places_is_worked_on_once() -> None:
    one, other = Counted(), Counted()
    assert doubled(cast(Expr, one)) == doubled(cast(Expr, other))
    assert len(one.compared) + len(other.compared) <= 2  # the last two parts stand in two places each
    number, same_number = doubled(Ref("x")), doubled(Ref("x"))
    assert same(number, same_number)
    assert not same(number, doubled(Ref("y")))
    assert list(parts(number)).count(Ref("x")) == 2
    assert list(names(substitute(number, {"x": Ref("y")}))) == ["y", "y"]
    assert not has_unknown(number)
    assert has_unknown(doubled(Const(Unknown("it is not known"))))


def test_alternatives_are_the_objects_and_not_the_ways() -> None:
    first, second = Instance("A"), Instance("B")
    assert list(alternatives(branches(first, second))) == [first, second]
    into: dict[Key, Abstract] = {}
    mappings = Container("dict", {"a": Const(1), "b": Const(1)}), Container("dict", {"b": Const(2), "c": Const(2)})
    copy_items(branches(*mappings), into)
    assert into == {"a": Const(1), "b": Const(1), "c": Const(2)}
