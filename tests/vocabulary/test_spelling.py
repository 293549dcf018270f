"""Spellings of files in the Job's words, and values that no Job can have."""

from __future__ import annotations

import pytest

from preflight.vocabulary.job import fields
from preflight.vocabulary.spelling import Invalid, checked, kind_of, normal
from preflight.vocabulary.study import Bound, Source
from preflight.vocabulary.values import Cause, Const, Origin, Ref, Span, Unknown, Value, evaluate


def test_every_field_has_a_kind() -> None:
    assert [field for field in fields() if kind_of(field) is None] == []


@pytest.mark.parametrize("field", ["train", "train.bs", "nothing", "train.batch_size.x"])
def test_no_field(field: str) -> None:
    assert kind_of(field) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.batch_size", 16),
        ("train.precision", "fp16"),
        ("train.precision", "bf16"),
        ("train.optimizer", "adamw"),
        ("parallel.strategy", "zero2"),
        ("data.pin_memory", True),
        ("train.peft.targets", ("q_proj", "v_proj")),
        ("model.config.n_layer", 12),
        ("train.batch_size", None),
    ],
)
def test_what_must_not_change(field: str, value: Value) -> None:
    assert normal(field, value) == value


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("train.batch_size", "16", 16),
        ("train.batch_size", 16.0, 16),
        ("train.batch_size", "1e3", 1000),
        ("machine.gpu_memory", "24GiB", 24 * 2**30),
        ("data.sample_bytes", "1.5 MiB", 3 * 2**19),
        ("train.precision", "16-mixed", "fp16-mixed"),
        ("train.precision", "bf16-true", "bf16"),
        ("train.precision", 16, "fp16-mixed"),
        ("train.precision", 32, "fp32"),
        ("train.precision", False, "fp32"),
        ("train.precision", "no", "fp32"),
        ("train.weights_dtype", "torch.bfloat16", "bf16"),
        ("train.attention", "flash_attention_2", "flash"),
        ("parallel.strategy", "deepspeed_stage_3", "zero3"),
        ("train.optimizer", "AdamW", "adamw"),
        ("train.optimizer_impl", "for_loop", "for-loop"),
        ("train.outputs_kept", True, "step"),
        ("data.pin_memory", "False", False),
        ("data.pin_memory", 1, True),
        ("task", "causal_lm", "causal-lm"),
        ("train.frozen", "encoder", ("encoder",)),
        ("train.peft.dropout", "0.1", 0.1),
    ],
)
def test_spellings(field: str, value: Value, expected: Value) -> None:
    found = normal(field, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("setting", "expected"), [("fp16", "fp16-mixed"), ("train.bf16", "bf16-mixed")])
def test_a_switch_is_a_precision_with_its_name(setting: str, expected: str) -> None:
    assert normal("train.precision", True, setting) == expected
    assert isinstance(normal("train.precision", True), Unknown)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.batch_size", 0),
        ("train.batch_size", -1),
        ("train.batch_size", "many"),
        ("train.batch_size", True),
        ("train.batch_size", 1.5),
        ("train.batch_size", float("nan")),
        ("train.batch_size", (8, 16)),
        ("data.workers", -1),
        ("train.precision", "fp12"),
        ("data.pin_memory", "perhaps"),
        ("nothing.at_all", 1),
    ],
)
def test_impossible(field: str, value: Value) -> None:
    with pytest.raises(Invalid, match=field.split(".")[0]):
        normal(field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.peft.r", 0),
        ("parallel.nodes", 0),
        ("parallel.gpus_per_node", "auto"),
        ("train.batch_size", "eos"),
        ("train.batch_size", -1),
        ("train.grad_accum", "2,4,8"),
        ("data.workers", "config.num_workers"),
        ("train.image_size", (32, 64)),
        ("train.precision", "mine"),
    ],
)
def test_a_value_that_only_preflight_cannot_use_is_unknown(field: str, value: Value) -> None:
    at = Origin("a.py", Span(3, 4))
    bound, problem = checked(Bound(field, Const(value, at), at))
    assert problem is None
    try:
        assert isinstance(normal(field, evaluate(bound.expr)), Unknown)
    except Invalid:
        pytest.fail("the bound still has the value")


def test_a_name_is_no_proof_that_the_value_is_used() -> None:
    at = Origin("a.yaml", Span(3, 4))
    assert checked(Bound("train.batch_size", Const(0, at), at, setting="eval.batch_size"))[1] is None
    assert checked(Bound("train.batch_size", Const("x", at), at, source=Source.map))[1] is not None


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("parallel.gpus_per_node", (0, 1), 2),
        ("parallel.ranks_per_node", (3,), 1),
        ("train.image_size", (32, 32), 32),
    ],
)
def test_lists_that_say_one_number(field: str, value: Value, meant: int) -> None:
    assert normal(field, value) == meant


@pytest.mark.parametrize("value", [-1, "auto", "-1", "max"])
def test_all_gpus_of_the_machine(value: Value) -> None:
    found = normal("parallel.gpus_per_node", value)
    assert isinstance(found, Unknown)
    assert found.cause is Cause.run_time


def test_an_impossible_constant_is_a_problem_at_its_place() -> None:
    at = Origin("a.yaml", Span(3, 4))
    bound, problem = checked(Bound("train.batch_size", Const(0, at), at))
    assert problem is not None
    assert (problem.origin, problem.rule) == (at, "invalid-config")
    assert "at least 1" in problem.message
    assert isinstance(bound.expr, Const)
    assert isinstance(bound.expr.value, Unknown)


def test_axes_and_unknowns_are_left_alone() -> None:
    for expr in (Ref("axis"), Const(Unknown("why")), Const(4)):
        bound = Bound("train.batch_size", expr)
        assert checked(bound) == (bound, None)


@pytest.mark.parametrize("field", ["parallel.gpus_per_node", "train.batch_size"])
def test_auto_is_decided_when_the_program_runs(field: str) -> None:
    at = Origin("config.yaml", Span(0, 4))
    bound, problem = checked(Bound(field, Const("auto", at), at))
    assert problem is None
    assert isinstance(bound.expr, Const)
    assert isinstance(bound.expr.value, Unknown)
    assert checked(Bound(field, Const("auto", at), at, source=Source.command_line))[1] is not None
