"""W&B sweeps: the parameter grammar, and what W&B's own schema refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from wandb_sweeps import HEAD, domain, only, parameter, place, project, read

from preflight.dialects.wandb import reader as wandb
from preflight.dialects.wandb.reader import as_yaml_11
from preflight.frameworks.wandb_space import read_space
from preflight.vocabulary.budgets import TREE_NODES
from preflight.vocabulary.values import Axis, Choices, Const, Range, Unbounded, Unknown, evaluate

# --- what must not be recognised -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "name: ci\non: push\njobs:\n  a:\n    steps: []\nparameters: {x: {value: 1}}\n",
        "apiVersion: batch/v1\nkind: Job\nspec: {}\nparameters: {x: {value: 1}}\nmethod: grid\n",
        "parameters:\n  x: {value: 1}\n",
        "parameters: [1, 2]\nmethod: grid\n",
        "method: POST\nparameters:\n  id: {type: string}\n",
        "method: grid\nother: 1\n",
        "parameters:\n  - name: a\nmethod: GET\n",
        "openapi: 3.0.0\nparameters: {limit: {in: query}}\nmethod: get\n",
        "sweep_config: {method: grid}\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n",
        "- method: grid\n- parameters: {x: {value: 1}}\n",
        "",
        "parameters: {a: [b\n",
    ],
)
def test_other_files_are_left_alone(text: str, tmp_path: Path) -> None:
    found = project(tmp_path, {"some.yaml": text})
    assert not wandb.recognises(found.source("some.yaml"), found)


@pytest.mark.parametrize(
    "text",
    [
        "method: grid\nparameters: {x: {value: 1}}\n",
        "program: a.py\nparameters: {x: {min: 1, max: 2}}\n",
        "method: grdi\nparameters: {x: {values: [1]}}\n",
        "kind: sweep\nmethod: bayes\nparameters: {bs: 16}\n",
        "method: bayes\nparameters:\n  x: {value: [}\n",
    ],
)
def test_sweeps_are_recognised(text: str, tmp_path: Path) -> None:
    found = project(tmp_path, {"some.yml": text})
    assert wandb.recognises(found.source("some.yml"), found)


# --- the grammar ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "low", "high", "step", "integer", "log"),
    [
        ("{min: 1, max: 8}", 1, 8, 1, True, False),
        ("{min: 0.0, max: 3}", 0.0, 3, None, False, False),
        ("{distribution: uniform, min: 1, max: 3}", 1, 3, None, False, False),
        ("{distribution: q_uniform, min: 16, max: 256, q: 16}", 16, 256, 16, True, False),
        ("{distribution: q_uniform, min: 10, max: 100, q: 16}", 16, 96, 16, True, False),
        ("{distribution: q_uniform, min: 0.1, max: 0.5, q: 0.1}", 0.1, 0.5, 0.1, False, False),
        ("{distribution: q_uniform, min: 1, max: 9}", 1, 9, 1, True, False),
        ("{distribution: log_uniform, min: -2.0, max: 1.0}", math.exp(-2), math.e, None, False, True),
        ("{distribution: inv_log_uniform, min: -2.0, max: 1.0}", math.exp(-1), math.exp(2), None, False, True),
        ("{distribution: log_uniform_values, min: 0.001, max: 0.1}", 0.001, 0.1, None, False, True),
        ("{distribution: inv_log_uniform_values, min: 0.001, max: 0.1}", 0.001, 0.1, None, False, True),
        ("{distribution: q_log_uniform_values, min: 8, max: 64, q: 8}", 8, 64, 8, True, True),
        ("{distribution: q_log_uniform, min: 0.0, max: 5.0, q: 8}", 0, 152, 8, True, True),
        ("{distribution: beta, a: 2, b: 3}", 0, 1, None, False, False),
    ],
)
def test_ranges(
    body: str, low: float, high: float, step: float | None, integer: bool, log: bool, tmp_path: Path
) -> None:
    reading, _ = parameter(tmp_path, body)
    found = domain(reading)
    assert isinstance(found, Range)
    assert (found.low, found.high, found.step) == (pytest.approx(low), pytest.approx(high), step)
    assert (found.integer, found.log) == (integer, log)
    assert [one for one in reading.problems if one.severity == "error"] == []


@pytest.mark.parametrize("kind", ["normal", "q_normal", "log_normal", "q_log_normal"])
def test_no_finite_worst_case(kind: str, tmp_path: Path) -> None:
    reading, _ = parameter(tmp_path, f"{{distribution: {kind}, mu: 3, sigma: 1}}")
    assert domain(reading) == Unbounded(kind)
    assert reading.problems == ()


def test_choices_know_the_place_of_each(tmp_path: Path) -> None:
    reading, source = parameter(tmp_path, "{values: [8, 'a', [1, 2], null, true]}")
    found = domain(reading)
    assert isinstance(found, Choices)
    assert found.values == (8, "a", (1, 2), None, True)
    texts = [source.text[at.span.start : at.span.end] for at in found.origins if at is not None]
    assert texts == ["8", "'a'", "[1, 2]", "null", "true"]


def test_bounds_know_their_place(tmp_path: Path) -> None:
    reading, source = parameter(tmp_path, "{min: 4, max: 32}")
    found = domain(reading)
    assert isinstance(found, Range)
    assert found.high_origin is not None
    assert source.text[found.high_origin.span.start : found.high_origin.span.end] == "32"


def test_constants_and_single_choices(tmp_path: Path) -> None:
    reading, source = read(tmp_path, HEAD + "  a: {value: 3}\n  b:\n    values:\n      - 7\n")
    found = {one.key: one.expr for one in reading.settings}
    assert reading.axes == ()
    assert {key: evaluate(expr) for key, expr in found.items()} == {"a": 3, "b": 7}
    origin = found["b"].origin
    assert origin is not None
    assert source.line_column(origin.span.start) == (7, 9)


NESTED = """\
  optimizer:
    parameters:
      name: {value: adam}
      lr: {values: [0.1, 0.01]}
      inner:
        parameters:
          eps: {min: 1, max: 3}
"""


def test_nested_parameters_are_dotted_and_a_dictionary(tmp_path: Path) -> None:
    reading, _ = read(tmp_path, HEAD + NESTED)
    assert [axis.name for axis in reading.axes] == ["optimizer.lr", "optimizer.inner.eps"]
    assert [(one.key, evaluate(one.expr)) for one in reading.settings] == [("optimizer.name", "adam")]
    settings = only(reading).settings
    at = {"optimizer.lr": Const(0.1), "optimizer.inner.eps": Const(2)}
    assert evaluate(settings["optimizer"], at) == {"name": "adam", "lr": 0.1, "inner": {"eps": 2}}
    assert evaluate(settings["optimizer.inner.eps"], at) == 2


def test_plain_values_work_without_a_file() -> None:
    """Python sweeps hand over dictionaries; some of their values nobody can tell."""
    space = read_space({"a": {"values": [1, 2]}, "b": Unknown("computed"), "c": {"value": (1, 2)}}, lambda route: None)
    assert space.axes == (Axis("a", Choices((1, 2), (None, None))),)
    assert [(name, isinstance(one.value, Unknown)) for name, one in space.constants] == [("b", True), ("c", False)]
    assert set(space.settings) == {"a", "b", "c"}


# --- numbers that YAML 1.1 reads as text ---------------------------------------------------------------------------


def test_an_exponent_without_a_point_is_text_to_wandb(tmp_path: Path) -> None:
    text = HEAD + "  lr: {min: 1e-5, max: 1E-1}\n  wd: {values: [1e-3, 0.1, '1e-4']}\n  n: {value: 2.5e6}\n"
    reading, source = read(tmp_path, text)
    found = [one for one in reading.problems if one.rule == "number-read-as-string"]
    assert [(place(source, one), one.severity) for one in found] == [
        ((4, 13, "1e-5"), "error"),
        ((5, 17, "1e-3"), "info"),
    ], "one for each way in which it matters"
    assert [(one.fix, [text for _, text in one.also]) for one in found] == [
        ("1.0e-5", ["1.0E-1"]),
        ("1.0e-3", ["2.5e+6"]),
    ]
    assert all(one.safe for one in found)
    lr, wd = domain(reading, "lr"), domain(reading, "wd")
    assert isinstance(lr, Range)
    assert isinstance(wd, Choices)
    assert (lr.low, lr.high, wd.values) == (1e-5, 0.1, (1e-3, 0.1, "1e-4"))
    assert [evaluate(one.expr) for one in reading.settings] == [2.5e6]
    assert len(reading.problems) == len(found), "and nothing else is wrong with it"


def test_an_exponent_in_a_file_of_json_is_a_number(tmp_path: Path) -> None:
    """Programs hand such a file to `wandb.sweep` as `json.load` reads it."""
    sweep = '{"method": "grid", "program": "train.py", "parameters": {"lr": {"values": [1e-5, 1e-4]}}}'
    found = project(tmp_path, {"sweep.json": sweep, "sweep.yaml": sweep, "train.py": "import torch\n"})
    read_as = {name: wandb.read(found.source(name), None, found) for name in ("sweep.json", "sweep.yaml")}
    lr = [domain(one, "lr") for one in read_as.values()]
    assert [one.values for one in lr if isinstance(one, Choices)] == [(1e-5, 1e-4)] * 2
    assert [[one.severity for one in reading.problems] for reading in read_as.values()] == [[], ["info"]]


def test_a_sweep_over_a_budget_is_no_error_of_its_author(tmp_path: Path) -> None:
    text = HEAD + "  n: {values: [" + "1, " * TREE_NODES + "1]}\n"
    assert [one.severity for one in read(tmp_path, text)[0].problems] == ["info"]
    assert [one.severity for one in read(tmp_path, HEAD + "  n: {values: [1}\n")[0].problems] == ["error"]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (HEAD + "  lr: {distribution: uniform, min: 9e-6, max: 1e-3}\n", "info"),
        (HEAD + "  lr: {values: [1e-5, 1e-4, 1e-3]}\n", "info"),
        (HEAD + "  lr: {values: [1e-5, 1e-4]}\ncontroller: {type: local}\n", "warning"),
        (HEAD + "  lr: {min: 1e-5, max: 0.1}\n", "error"),
    ],
)
def test_only_a_client_that_needs_the_number_is_disturbed(text: str, severity: str, tmp_path: Path) -> None:
    assert [one.severity for one in read(tmp_path, text)[0].problems] == [severity]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "  x: {value: 1}\nentity: null\nproject: null\nname: null\n",
        "parameters:\n  x: {value: 1}\njob: a/b:1\nrun_cap: 5\nscheduler: {job: d:1, num_workers: 2}\n",
        HEAD + "  x: {value: 1}\nscheduler: {num_workers: 8}\n",
        HEAD + "  x: {distribution: log_uniform, min: -10, max: -1}\n",
        HEAD + "  x: {distribution: log_uniform, min: 0, max: 1}\n",
        HEAD + "  x: {distribution: q_log_uniform, min: 3, max: 6, q: 8}\n",
    ],
)
def test_what_wandb_takes(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text)[0].problems == ()


def test_an_unknown_key_at_the_top_is_not_used(tmp_path: Path) -> None:
    [problem] = read(tmp_path, HEAD + "  x: {value: 1}\ncount: 5\n")[0].problems
    assert (problem.severity, problem.message) == ("warning", "unknown key 'count'")


@given(st.from_regex(r"[-+]?([0-9]{1,6})(\.[0-9]{0,4})?[eE][-+]?[0-9]{1,3}", fullmatch=True))
def test_the_proposed_spelling_is_the_same_number(text: str) -> None:
    fixed = yaml.safe_load(as_yaml_11(text))
    assert isinstance(fixed, float)
    assert fixed == float(text)


# --- what W&B refuses, at its line and column ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("method: grdi\nparameters:\n  x: {values: [1, 2]}\n", 1, 9, "'bayes', 'random', 'grid'"),
        (HEAD.replace("method: random\n", "") + "  x: {value: 1}\n", 1, 1, "'method' is missing"),
        (HEAD + "  x: {value: 1}\nmetrc: {name: a}\n", 5, 1, "did you mean 'metric'"),
        (HEAD + "  x: {value: 1}\nrun_cap: 0\n", 5, 10, "run_cap"),
        (HEAD + "  x: {value: 1}\nrun_cap: many\n", 5, 10, "'many' is not a whole number"),
        (HEAD + "  x: {value: 1}\nmetric: {goal: minimize}\n", 5, 9, "'name' is missing"),
        (HEAD + "  bs: 16\n", 4, 7, "{value: ...}"),
        (HEAD + "  bs: [8, 16]\n", 4, 7, "{values: ...}"),
        (HEAD + "  x: {values: []}\n", 4, 15, "at least 1"),
        (HEAD + "  x: {value: 1, typo: 2}\n", 4, 17, "unknown key 'typo'"),
        (HEAD + "  x: {min: 1}\n", 4, 6, "'max' is missing"),
        (HEAD + "  x: {min: a, max: 3}\n", 4, 12, "'a' is not a number"),
        (HEAD + "  x: {min: 8, max: 4}\n", 4, 12, "min 8 is not less than max 4"),
        (HEAD + "  x: {distribution: log_unifrom, min: 1, max: 2}\n", 4, 21, "did you mean 'log_uniform'"),
        (HEAD + "  x: {distribution: categorial, values: [1, 2]}\n", 4, 21, "did you mean 'categorical'"),
        (HEAD + "  x: {distribution: '', min: 1, max: 2}\n", 4, 21, "'int_uniform'"),
        (HEAD + "  x: {distribution: nested}\n", 4, 6, "'parameters' is missing"),
        (HEAD + "  x: {distribution: log_uniform_values, min: 0, max: 2}\n", 4, 46, "greater than 0"),
        (HEAD + "  x: {distribution: q_uniform, min: 0, max: 2, q: 0}\n", 4, 51, "greater than 0"),
        (HEAD + "  x: {values: [1, 2], probabilities: [0.5]}\n", 4, 38, "2 values with 1 probabilities"),
        (HEAD + "  x: {values: [1, 2], probabilities: [0.5, 0.6]}\n", 4, 38, "sum to 1.1"),
        (HEAD + "  1x: {value: 2}\n", 4, 7, "not a parameter name"),
        (HEAD + "  x: {}\n", 4, 6, "it needs"),
        (HEAD + "  x:\n    parameters:\n      y: {vals: [1]}\n", 6, 10, "it needs"),
        (HEAD.replace("random", "grid") + "  x: {min: 0.5, max: 1}\n", 4, 6, "grid search cannot walk"),
        (HEAD + "  x: {value: 1}\n  x: {value: 2}\n", 5, 3, "twice"),
        ("method: bayes\nparameters:\n  x: {value: 1}\n", 1, 9, "needs a `metric`"),
        (HEAD + "  x: {value: 1}\nearly_terminate: {type: hyperband}\n", 5, 18, "min_iter"),
        ("method: random\nparameters: {}\nprogram: train.py\n", 2, 13, "at least one"),
        ("method: random\nparameters:\n  x: {value: [}\n", 3, 15, "not readable"),
    ],
)
def test_refused_at_its_place(text: str, line: int, column: int, words: str, tmp_path: Path) -> None:
    reading, source = read(tmp_path, text)
    found = [one for one in reading.problems if words in one.message]
    assert [place(source, one)[:2] for one in found] == [(line, column)], reading.problems
    assert found[0].rule == "invalid-config"


def test_the_rest_of_a_broken_sweep_is_read(tmp_path: Path) -> None:
    reading, _ = read(
        tmp_path, HEAD + "  bs: 16\n  w: [1, 2]\n  lr: {values: [1, 2], typo: 3}\n  z: {min: 1e0, max: 9}\n"
    )
    assert {one.key: evaluate(one.expr) for one in reading.settings} == {"bs": 16}
    assert [axis.name for axis in reading.axes] == ["w", "lr", "z"]


def test_exponents_are_pointed_out(tmp_path: Path) -> None:
    reading, _ = parameter(tmp_path, "{distribution: log_uniform, min: 0.0001, max: 0.1}")
    [problem] = reading.problems
    assert problem.severity == "warning"
    assert "1 to 1.11" in problem.message
    huge = domain(parameter(tmp_path, "{distribution: log_uniform, min: 1, max: 100000}")[0])
    assert isinstance(huge, Unbounded)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("method: grid\nparameters:\n  x: {value: {{ lr }}}\n{% if a %}\n{% endif %}\n", "info"),
        ("method: grid\nparameters:\n  x: {value: 1}\n---\nmethod: grid\n", "error"),
    ],
)
def test_templates_and_several_documents(text: str, severity: str, tmp_path: Path) -> None:
    reading, _ = read(tmp_path, text)
    assert severity in {one.severity for one in reading.problems}
