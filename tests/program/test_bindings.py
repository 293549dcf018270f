"""Values that calls give a field under conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.program.bindings import bind, pruned, settled, under
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, evaluate

CALLS = 14


def size(expr: Expr) -> int:
    """The number of parts, each as often as it stands there."""
    return 1 + sum(size(one) for one in expr.operands) if isinstance(expr, Op) else 1


def made(*, alike: bool) -> Expr:
    """The value of a field that many calls set, each under a parameter and a condition that only running tells."""
    bindings = []
    for number in range(CALLS):
        unsure = Const(Unknown(f"whether file {number} is there", Cause.run_time))
        decided = Ref("wanted") if alike else Op("==", (Ref("kind"), Const(number)))
        bindings += under((decided, unsure), [bind("model.name", Const(f"model{number}"))])
    return settled(bindings)[-1].expr


def test_calls_that_two_conditions_choose_do_not_double_each_other() -> None:
    assert size(made(alike=True)) < 50 * CALLS
    assert size(made(alike=False)) < 50 * CALLS


def test_what_only_running_tells_is_unknown_where_the_parameters_allow_it() -> None:
    expr = made(alike=True)
    assert isinstance(evaluate(expr, {"wanted": Const(True)}), Unknown)
    assert evaluate(expr, {"wanted": Const(False)}) is None


def test_no_call_is_made_where_no_parameter_asks_for_one() -> None:
    expr = made(alike=False)
    assert isinstance(evaluate(expr, {"kind": Const(0)}), Unknown)
    assert evaluate(expr, {"kind": Const(CALLS)}) is None


def test_a_value_of_very_many_parts_is_unknown() -> None:
    """Each branch of an `if` that nobody decides holds what stood before it: the parts double, the objects do not."""
    expr: Expr = Ref("size")
    for _ in range(22):
        expr = Op("if", (Ref("asked"), expr, expr))
    [found] = settled([bind("train.batch_size", expr), bind("train.batch_size", expr)])[-1:]
    assert isinstance(found.expr, Const)
    assert isinstance(found.expr.value, Unknown)
    assert found.expr.value.cause is Cause.budget


@pytest.mark.parametrize(
    "condition",
    [
        Op("in", (Ref("bits"), Const((4, 8)))),
        Op("is", (Ref("tower"), Const(None))),
        Op("and", (Ref("wanted"), Op("is not", (Ref("tower"), Const(None))))),
        Op("not", (Op("or", (Ref("wanted"), Ref("bits"))),)),
    ],
)
def test_branches_that_no_path_reaches_are_left_out(condition: Op) -> None:
    """Calls under one condition, and others under its opposite, say no more than two of them."""
    expr: Expr = Const(0)
    for number in range(20):
        expr = pruned(Op("if", (condition, Const(number), Op("if", (Op("not", (condition,)), expr, Const(-1))))))
    assert size(expr) < 20


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=8), st.data())
def test_pruning_changes_no_value(steps: list[tuple[str, bool, int]], data: st.DataObject) -> None:
    expr: Expr = Const(-1)
    for name, negated, value in steps:
        condition: Expr = Op("is not" if negated else "is", (Ref(name), Const(None)))
        expr = Op("if", (condition, Const(value), Op("if", (Ref("a"), expr, Const(value + 10)))))
    setting = {name: Const(data.draw(st.sampled_from([None, 0, 1]))) for name in "abc"}
    assert evaluate(pruned(expr), setting) == evaluate(expr, setting)
