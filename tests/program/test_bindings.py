"""Values that calls give a field under conditions."""

from __future__ import annotations

from preflight.program.bindings import bind, settled, under
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
