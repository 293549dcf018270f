"""What counts as changed beside the intent: first what may not, then what may."""

from __future__ import annotations

import pytest

from preflight.fixes.changed_routes import changed_routes, only_meant
from preflight.fixes.compare import Intent, carried_over, differences, same_expr
from preflight.vocabulary.findings import Change, Safety
from preflight.vocabulary.reading import Request
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.text import Edit, Source
from preflight.vocabulary.values import Axis, Choices, Const, Expr, Op, Origin, Range, Ref, Span, Unbounded, Unknown

PLACE = Origin("a.yaml", Span(10, 12), ("batch",))
ELSEWHERE = Origin("a.yaml", Span(50, 52), ("other",))
EDIT = Edit("a.yaml", Span(10, 12), "16")


def study(
    fields: dict[str, Expr],
    *axes: Axis,
    request: Request | None = None,
    paths: tuple[str, ...] = ("a.yaml",),
    constants: dict[str, Expr] | None = None,
    fixed: dict[str, object] | None = None,
) -> Study:
    bounds = {name: Bound(name, expr, getattr(expr, "origin", None)) for name, expr in fields.items()}
    box = Box(bounds, axes, fixed or {}, constants or {})  # type: ignore[arg-type]
    return Study(paths, ("toy",), (box,), request)


def found(before: Study, after: Study, *changes: Change, safety: Safety = Safety.safe) -> dict[str, bool]:
    """Name of what changed -> whether it is bound to."""
    return {d.name: d.harmless for d in differences(before, after, Intent(changes, (EDIT,), safety))}


SEQ, SIZE = "train.seq_len", "train.batch_size"
BATCH = Change(SIZE, 16)


def one(value: object, origin: Origin = PLACE) -> Expr:
    return Const(value, origin)  # type: ignore[arg-type]


def axis(*values: int, name: str = "x", fields: tuple[str, ...] = ()) -> Axis:
    return Axis(name, Choices(values), None, fields)


CHANGED: list[tuple[str, Study, Study, tuple[Change, ...], str]] = [
    ("a field elsewhere", study({SEQ: one(1, ELSEWHERE)}), study({SEQ: one(2)}), (BATCH,), SEQ),
    ("a field that is new", study({}), study({SEQ: one(2)}), (BATCH,), SEQ),
    ("a field that is gone", study({SEQ: one(2, ELSEWHERE)}), study({}), (BATCH,), SEQ),
    ("the wrong value", study({SIZE: one(64)}), study({SIZE: one(8)}), (BATCH,), SIZE),
    ("the named field is gone", study({SIZE: one(64)}), study({}), (BATCH,), SIZE),
    ("computed from it", study({SEQ: Op("*", (one(64), Const(2)))}),
     study({SEQ: Op("*", (one(16), Const(2)))}), (BATCH,), SEQ),
    ("another axis", study({}, axis(1, 2)), study({}, axis(1)), (BATCH,), "x"),
    ("an axis kept otherwise", study({}, axis(1, 2, 3)), study({}, axis(1)), (Change("x", keep=(1, 2)),), "x"),
    ("an axis that is gone", study({}, axis(1, 2, 3)), study({}), (Change("x", keep=(1, 2)),), "x"),
    ("an axis pinned to another value", study({SEQ: Ref("x")}, axis(1, 2)), study({SEQ: one(2)}),
     (Change("x", keep=(1,)),), SEQ),
    ("an axis that is new", study({}), study({}, axis(1, 2)), (BATCH,), "x"),
    ("a range bound", study({}, Axis("x", Range(1, 8))), study({}, Axis("x", Range(1, 9))),
     (Change("x", keep=(1, 4)),), "x"),
    ("another distribution", study({}, Axis("x", Unbounded("normal"))), study({}, axis(1)), (BATCH,), "x"),
    ("a branch", study({}, fixed={"model": "a"}), study({}, fixed={"model": "b"}), (BATCH,), "a branch of the search"),
    ("the files", study({}), study({}, paths=("a.yaml", "b.py")), (BATCH,), "the files that belong together"),
    ("the request", study({}, request=Request(nodes=1)), study({}, request=Request(nodes=2)), (BATCH,),
     "request.nodes"),
    ("no request any more", study({}, request=Request()), study({}), (BATCH,), "the request"),
    ("less than was asked", study({}, request=Request(memory=100)), study({}, request=Request(memory=190)),
     (Change("request.memory", 200),), "request.memory"),
    ("a setting elsewhere", study({}, constants={"lr": one(1, ELSEWHERE)}), study({}, constants={"lr": one(2)}),
     (BATCH,), "lr"),
    ("a setting that is gone", study({}, constants={"lr": one(1)}), study({}), (BATCH,), "lr"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "before", "after", "changes", "name"), CHANGED, ids=[row[0] for row in CHANGED])
def test_what_changed_beside_the_intent_is_seen(
    what: str, before: Study, after: Study, changes: tuple[Change, ...], name: str
) -> None:
    assert found(before, after, *changes) == {name: False}


MEANT: list[tuple[str, Study, Study, tuple[Change, ...]]] = [
    ("nothing", study({SEQ: one(1)}), study({SEQ: one(1, ELSEWHERE)}), (BATCH,)),
    ("the named field", study({SIZE: one(64)}), study({SIZE: one(16)}), (BATCH,)),
    ("evaluation follows", study({"validation.batch_size": Op("*", (one(64), Const(2)))}),
     study({"validation.batch_size": Op("*", (one(16), Const(2)))}), (BATCH,)),
    ("unknown both times", study({"model.name": Const(Unknown("x"))}), study({"model.name": Const(Unknown("y"))}),
     (BATCH,)),
    ("the axis as it was meant", study({}, axis(1, 2, 3)), study({}, axis(1, 2)), (Change("x", keep=(1, 2)),)),
    ("the range as it was meant", study({}, Axis("x", Range(1, 8))), study({}, Axis("x", Range(1, 4))),
     (Change("x", keep=(1, 4)),)),
    ("an axis of which one value is kept", study({SIZE: Ref("x"), SEQ: Op("*", (Ref("x"), Const(2)))}, axis(1, 2)),
     study({SIZE: one(1), SEQ: Op("*", (one(1), Const(2)))}), (Change("x", keep=(1,)),)),
    ("memory rounded up", study({}, request=Request(memory=1000)), study({}, request=Request(memory=2010)),
     (Change("request.memory", 2000),)),
    ("the limit follows the request", study({}), study({"machine.memory_limit": one(5)}),
     (Change("request.memory", 5),)),
    ("a text that is proposed as it is", study({SEQ: one("1e3")}), study({SEQ: one(1000)}), ()),
    ("and what it states first", study({}), study({SEQ: one(1000)}), ()),
    ("a copy of the value", study({SIZE: one(64)}, constants={"bs": one(64)}),
     study({SIZE: one(16)}, constants={"bs": one(16)}), (BATCH,)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "before", "after", "changes"), MEANT, ids=[row[0] for row in MEANT])
def test_what_was_meant_is_no_difference(what: str, before: Study, after: Study, changes: tuple[Change, ...]) -> None:
    assert found(before, after, *changes) == {}


def test_a_flag_that_nobody_gave_may_be_given() -> None:
    before = study({SIZE: Const(64)}, constants={"batch_size": Const(64), "epochs": Const(3)})
    after = study({SIZE: one(16)}, constants={"batch_size": one(16), "epochs": Const(3)})
    assert found(before, after, BATCH) == {}
    other = study({SIZE: one(16)}, constants={"batch_size": one(16), "epochs": one(16)})
    assert found(before, other, BATCH) == {"epochs": False}


def test_what_is_bound_to_follow_takes_safety_away() -> None:
    before = study(
        {SIZE: one(64), "model.config": one({"b": 64}), "train.text_len": one(64)},
        constants={"warmup": Op("*", (one(64), Const(10)))},
    )
    after = study(
        {SIZE: one(16), "model.config": one({"b": 16}), "train.text_len": one(16)},
        constants={"warmup": Op("*", (one(16), Const(10)))},
    )
    assert found(before, after, BATCH) == {"model.config": True, "train.text_len": True, "warmup": True}


def test_another_study_may_change_only_in_the_same_way() -> None:
    own = study({SIZE: one(64), "train.grad_accum": one(1)})
    intent = Intent((BATCH, Change("train.grad_accum", 4)), (EDIT,), Safety.safe)

    def carried(before: tuple[int, int], after: tuple[int, int]) -> list[str]:
        studies = [study({SIZE: one(size), "train.grad_accum": one(accum)}) for size, accum in (before, after)]
        return [difference.name for difference in carried_over(own, *studies, intent)]

    assert carried((64, 1), (16, 4)) == []
    assert carried((8, 1), (8, 1)) == []
    assert carried((8, 1), (8, 4)) == [SIZE]
    assert carried((64, 1), (64, 4)) == [SIZE]
    assert carried((64, 2), (16, 4)) == ["train.grad_accum"]


def test_a_branch_may_go_where_its_value_is_dropped() -> None:
    before = Study(("a.yaml",), ("toy",), (Box({}, (), {"model": "a"}), Box({}, (), {"model": "b"})))
    after = study({}, fixed={"model": "a"})
    assert found(before, after, Change("model", keep=("a",))) == {}
    assert found(before, after, Change("model", keep=("a", "b"))) == {"a branch of the search": False}


def test_expressions_are_equal_wherever_they_are_written() -> None:
    assert same_expr(Op("+", (Ref("a", PLACE), Const(1))), Op("+", (Ref("a"), Const(1, PLACE))))
    for other in (
        Op("-", (Ref("a"), Const(1))),
        Op("+", (Ref("b"), Const(1))),
        Op("+", (Ref("a"), Const(True))),
        Op("+", (Ref("a"), Const(1.0))),
        Op("+", (Ref("a"),)),
        Const(1),
    ):
        assert not same_expr(Op("+", (Ref("a"), Const(1))), other)


def test_routes_that_changed() -> None:
    before = {"a": 1, "b": (1, {"c": 2}), "d": (1, 2)}
    after = {"a": 1, "b": (1, {"c": 3}), "d": (1,)}
    assert list(changed_routes(before, after)) == [("b", 1, "c"), ("d",)]
    assert list(changed_routes({"a": 1}, {"a": True, "b": 1})) == [("a",), ()]


def test_an_edit_may_only_change_what_stands_on_its_lines() -> None:
    text = "a: &x 1\nb: 2\nc: *x\nd: [1,\n  2]\n"
    source = Source("a.yaml", text)

    def replaced(old: str, new: str, path: str = "a.yaml") -> bool:
        at = text.index(old)
        return only_meant(Source(path, text), [Edit(path, Span(at, at + len(old)), new)])

    assert replaced("2\n", "3\n")
    assert replaced("b: 2", "b: 2\nn: 1")
    assert replaced("  2]", "  2, 3]")
    assert not replaced("&x 1", "&x 5")
    assert not replaced("2\nc", "[2\nc")
    assert not replaced("b: 2", "b: {")
    assert replaced("b: 2", "b: {", "job.sh")
    assert only_meant(source, [])
