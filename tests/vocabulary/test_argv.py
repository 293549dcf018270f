"""An argv and what argparse, click and HfArgumentParser would make of it."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.vocabulary.argv import bind, bind_words
from preflight.vocabulary.reading import Parameter, Word, word
from preflight.vocabulary.values import Const, Op, Origin, Ref, Span, Unknown, evaluate

BATCH = Parameter("batch_size", Const(32), ("--batch_size", "-b"), type="int")
AMP = Parameter("amp", Const(False), ("--amp",), type="flag")
NO_PIN = Parameter("pin", Const(True), ("--no-pin",), type="no-flag")
COMPILE = Parameter("compile", Const(True), ("--compile", "--no-compile"), type="bool")
NAME = Parameter("name", Const("a"), ("--name",), type="str")
SIZES = Parameter("sizes", Const(()), ("--sizes",), type="list")
MODEL = Parameter("model", Const(None), (), type="str")
BF16 = Parameter("bf16", Const(False), ("--bf16",), "dataclass", "bool")
ALL = (BATCH, AMP, NO_PIN, COMPILE, NAME, SIZES, MODEL, BF16)


def values(line: str, parameters: tuple[Parameter, ...] = ALL) -> dict[str, object]:
    bound = bind_words(parameters, [word(text) for text in line.split()])
    return {name: evaluate(expr) for name, expr in bound.items()}


@pytest.mark.parametrize("line", ["", "--unknown 3", "--batchsize=3", "--", "--b"])
def test_words_of_nobody_bind_nothing(line: str) -> None:
    assert "batch_size" not in values(line)
    assert "name" not in values(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--batch_size 16", {"batch_size": 16}),
        ("--batch_size=16", {"batch_size": 16}),
        ("-b 16", {"batch_size": 16}),
        ("-b16", {"batch_size": 16}),
        ("--batch 16", {"batch_size": 16}),  # argparse completes an unambiguous beginning
        ("--batch_size 16 --batch_size 8", {"batch_size": 8}),
        ("--amp", {"amp": True}),
        ("--no-pin", {"pin": False}),
        ("--compile", {"compile": True}),
        ("--no-compile", {"compile": False}),
        ("--bf16", {"bf16": True}),
        ("--bf16 False", {"bf16": False}),
        ("--bf16 bert", {"bf16": True, "model": "bert"}),
        ("--bf16=true", {"bf16": True}),
        ("--sizes 1 2 3 --amp", {"sizes": ("1", "2", "3"), "amp": True}),
        ("bert --amp", {"model": "bert", "amp": True}),
        ("--name -5", {"name": "-5"}),
    ],
)
def test_binding(line: str, expected: dict[str, object]) -> None:
    assert values(line) == expected


def test_a_value_that_is_no_number_is_unknown() -> None:
    assert isinstance(values("--batch_size many")["batch_size"], Unknown)


def test_a_missing_value_is_unknown() -> None:
    assert isinstance(values("--batch_size --amp")["batch_size"], Unknown)


def test_click_does_not_complete() -> None:
    click = Parameter("batch_size", Const(32), ("--batch-size",), "click", "int")
    assert values("--batch 16", (click,)) == {}
    assert values("--batch-size 16", (click,)) == {"batch_size": 16}


def test_two_candidates_complete_nothing() -> None:
    other = Parameter("batch_norm", Const(1), ("--batch_norm",), type="int")
    assert values("--batch 16", (BATCH, other)) == {}


def test_an_axis_stays_an_expression_and_its_place_is_kept() -> None:
    at = Origin("sweep.yaml", Span(3, 9))
    bound = bind_words(ALL, [Word("--batch_size=", Ref("bs", at))])
    assert bound["batch_size"] == Op("int", (Ref("bs", at),), at)


def test_an_unquoted_expansion_is_a_flag_of_its_own() -> None:
    at = Origin("run.sh", Span(5, 20))
    bound = bind_words(ALL, [Word("", Const("--batch_size=4", at))])
    value = bound["batch_size"]
    assert evaluate(value) == 4
    assert isinstance(value, Op)
    assert value.origin == Origin("run.sh", Span(18, 20))


def test_keyed_words_bind_config_parameters() -> None:
    parameter = Parameter("data.batch_size", Const(1), kind="hydra")
    assert values("data.batch_size=96", (parameter,)) == {"data.batch_size": 96}


def test_what_nobody_takes_is_left() -> None:
    assert [w.prefix for w in bind(ALL, [word("--other=3"), word("--amp")]).left] == ["--other="]


@given(
    st.lists(
        st.sampled_from(["--batch_size=4", "-b8", "--amp", "--name=x", "--batch 2", "--no-compile", "--compile"]),
        max_size=6,
    )
)
def test_the_same_as_argparse(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", "-b", type=int, default=32)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--name", default="a")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    argv = [text for item in words for text in item.split()]
    parameters = (BATCH, AMP, NAME, COMPILE)
    expected = vars(parser.parse_args(argv))
    found = {p.name: evaluate(p.default) for p in parameters} | values(" ".join(argv), parameters)
    assert found == expected
