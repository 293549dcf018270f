"""Names across files: axes are never taken for parameters, circles end, nothing grows without bound."""

from __future__ import annotations

from preflight.study.scope import MARK, Scope, fix_axes, references, unmark
from preflight.vocabulary.values import Const, Expr, Op, Ref, Unknown, evaluate


def test_an_axis_and_a_parameter_of_one_name_are_two_things() -> None:
    sweep = Scope(axes=frozenset({"bs"}))
    passed = sweep.resolve(Ref("bs"))
    program = Scope(given={"batch": passed}, local={"bs": Const(32)})
    assert unmark(program.resolve(Ref("batch"))) == Ref("bs")
    assert program.resolve(Ref("bs")) == Const(32)


def test_a_setting_that_holds_the_axis_of_its_own_name_is_no_circle() -> None:
    passed = Scope(axes=frozenset({"data.batch_size"})).resolve(Ref("data.batch_size"))
    config = Scope(local={"data.batch_size": passed, "half": Op("//", (Ref("data.batch_size"), Const(2)))})
    assert unmark(config.resolve(Ref("half"))) == Op("//", (Ref("data.batch_size"), Const(2)))


def test_what_a_caller_gives_beats_a_default() -> None:
    scope = Scope(given={"x": Const(1)}, local={"x": Const(2), "y": Ref("x")})
    assert scope.resolve(Ref("y")) == Const(1)


def test_circles_are_unknown() -> None:
    scope = Scope(local={"a": Ref("b"), "b": Op("+", (Ref("a"), Const(1)))})
    assert isinstance(evaluate(scope.resolve(Ref("a"))), Unknown)


def test_an_expression_that_doubles_is_unknown() -> None:
    local: dict[str, Expr] = {"x0": Ref("axis")}
    local |= {f"x{i}": Op("+", (Ref(f"x{i - 1}"), Ref(f"x{i - 1}"))) for i in range(1, 18)}
    found = Scope(axes=frozenset({"axis"}), local=local).resolve(Ref("x17"))
    assert isinstance(evaluate(unmark(found), {"axis": Const(1)}), Unknown)


def test_names_of_nobody_are_unknown_in_the_end() -> None:
    found = unmark(Scope().resolve(Op("*", (Ref("what"), Const(2)))))
    value = evaluate(found)
    assert isinstance(value, Unknown)
    assert "what" in value.words


def test_a_held_axis_decides_conditions() -> None:
    axis = Ref(MARK + "model")
    choice = Op("if", (Op("==", (axis, Const("a"))), Const(1), Const(2)))
    assert fix_axes(choice, {"model": Const("a")}) == Const(1)
    assert fix_axes(choice, {"model": Const("b")}) == Const(2)
    assert fix_axes(choice, {"other": Const("b")}) == choice


def test_references_go_through_definitions() -> None:
    local: dict[str, Expr] = {"a": Op("*", (Ref("b"), Ref("c"))), "c": Ref("a")}
    assert set(references([Ref("a")], local)) == {"a", "b", "c"}


def test_a_chain_of_thousands_is_unknown() -> None:
    local: dict[str, Expr] = {"x0": Const(1)}
    local |= {f"x{i}": Op("+", (Ref(f"x{i - 1}"), Const(1))) for i in range(1, 5000)}
    assert isinstance(evaluate(unmark(Scope(local=local).resolve(Ref("x4999")))), Unknown)
    forwards = Scope(local=local)
    values = [evaluate(unmark(forwards.resolve(Ref(f"x{i}")))) for i in range(5000)]
    assert values[:50] == list(range(1, 51))
    assert isinstance(values[-1], Unknown)
