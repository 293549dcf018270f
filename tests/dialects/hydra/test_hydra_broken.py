"""Hydra trees with something missing or wrong in them: a problem at its place, the rest is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra_trees import CONFIG, MAIN, TREE, alone, at, launched, problems, tree, values

from preflight.vocabulary.values import Const, Origin, Span, Unknown


def test_missing_files_are_gaps_and_the_rest_is_read(tmp_path: Path) -> None:
    files = dict(TREE)
    files["conf/config.yaml"] = CONFIG.replace("- model: small", "- base_from_elsewhere\n  - model: smal")
    project = tree(tmp_path, files)
    reading = alone(project)
    gaps = problems(reading, "info")
    assert len(gaps) == 2
    assert all(one.severity == "info" for one in gaps)
    assert any(
        "did you mean 'small'" in one.message and at(project, one.origin).startswith("conf/config.yaml:3")
        for one in gaps
    )
    assert values(reading)["data.batch_size"] == 4
    assert isinstance(values(reading)["length"], Unknown)


def test_plugins_that_are_not_installed(tmp_path: Path) -> None:
    files = dict(TREE)
    files["conf/config.yaml"] = CONFIG.replace(
        "  - _self_\n", "  - _self_\n  - override hydra/job_logging: colorlog\n  - override hydra/sweeper: ax\n"
    )
    reading = alone(tree(tmp_path, files))
    assert problems(reading) == []
    assert values(reading)["lr"] == 1e-5


def test_defaults_in_a_cycle(tmp_path: Path) -> None:
    files = {**TREE, "train.py": MAIN, "conf/model/small.yaml": "defaults: [large]\nlength: 8\n"}
    project = tree(tmp_path, files)
    reading = alone(project)
    [found] = problems(reading, "error")
    assert "model/small -> model/large -> model/small" in found.message
    assert at(project, found.origin).startswith(("conf/model/large.yaml:1", "conf/model/small.yaml:1"))
    assert values(reading)["data.batch_size"] == 4


def test_interpolations_in_a_cycle(tmp_path: Path) -> None:
    text = "defaults: [_self_]\na: ${b}\nb: ${c.d}\nc: {d: 'x${a}'}\ne: 1\n"
    project = tree(tmp_path, {"conf/config.yaml": text, "train.py": MAIN})
    reading = alone(project)
    [found] = problems(reading, "error")
    assert "cycle" in found.message
    assert found.origin.path == "conf/config.yaml"
    assert isinstance(values(reading)["a"], Unknown)
    assert values(reading)["e"] == 1


def test_defaults_that_multiply_without_bound(tmp_path: Path) -> None:
    files = {"conf/config.yaml": "defaults: [l0, _self_]\nx: 1\n"}
    files |= {f"conf/l{i}.yaml": f"defaults: [l{i + 1}, l{i + 1}@other]\n" for i in range(40)}
    files |= {"conf/l40.yaml": "y: 1\n", "train.py": MAIN}
    reading = alone(tree(tmp_path, files))
    assert problems(reading, "error")
    assert values(reading)["x"] == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${now:%H}", "time of the run"),
        ("${mine:3}", "the program defines"),
        ('${eval:\'__import__("os").system("x")\'}', "not evaluated"),
        ("${oc.env:SOME_UNSET_NAME}", "environment variable"),
        ("${nowhere.to.go}", "not set"),
        ("???", "command line"),
        ("${hydra:job.num}", "when the program runs"),
        ("${eval:'9**9**9'}", "has no value"),
    ],
)
def test_what_cannot_be_known_says_why(value: str, reason: str, tmp_path: Path) -> None:
    project = tree(tmp_path, {"conf/config.yaml": f"defaults: [_self_]\nx: {value}\n"})
    found = values(alone(project))["x"]
    assert isinstance(found, Unknown)
    assert reason in found.words


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("${eval:'(${n} + 2) * 3'}", 15),
        ('${eval:"max(1, ${n} // 2)"}', 1),
        ("${div_up:${n},2}", 2),
        ("${mul:${n},${n}}", 9),
        ("${oc.env:UNSET_NAME,5}", "5"),
        ("${oc.decode:${oc.env:UNSET_NAME,5}}", 5),
        ("${oc.select:no.such,${n}}", 3),
        ("${table.${which}}", 2),
        ("\\${n}", "${n}"),
        ("${n}${n}", "33"),
        ("${items[1]}", "q"),
        ("${hydra:runtime.choices.model}", "small"),
    ],
)
def test_emulated_resolvers(value: str, result: object, tmp_path: Path) -> None:
    text = f"defaults:\n  - model: small\nn: 3\nwhich: two\ntable: {{two: 2}}\nitems: [p, q]\nx: {value}\n"
    project = tree(tmp_path, {"conf/config.yaml": text, "conf/model/small.yaml": "a: 1\n"})
    assert values(alone(project))["x"] == result


def test_the_launch_says_what_the_environment_holds(tmp_path: Path) -> None:
    text = "defaults: [_self_]\ngpus: ${device_count:}\nhome: ${oc.env:SCRATCH}\n"
    project = tree(tmp_path, {"conf/config.yaml": text})
    held = {"SLURM_GPUS_ON_NODE": Const("4"), "SCRATCH": Const("/big", Origin("job.sh", Span(0, 1)))}
    assert values(launched(project, environment=held)) == {"gpus": 4, "home": "/big"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.batchsize=8", "did you mean 'data.batch_size'"),
        ("optim=adam", "not in the configuration"),
        ("+data.batch_size=8", "already"),
        ("a=[1", "cannot read the override"),
        ("data.batch_size=8,16", "--multirun"),
        ("~nothing", "no nothing to delete"),
    ],
)
def test_overrides_that_hydra_refuses(override: str, words: str, tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(project, override)
    [found] = problems(reading, "error")
    assert words in found.message
    assert found.origin.path == "job.sh"
    assert values(reading)["length"] == 128


@pytest.mark.parametrize("override", ["+data.batch_size=[8]", "+data.batch_size={a:8}", "++data.batch_size=8"])
def test_what_hydra_merges_is_no_error(override: str, tmp_path: Path) -> None:
    assert problems(launched(tree(tmp_path, TREE), override), "error") == []


def test_broken_files_are_reported_at_their_line(tmp_path: Path) -> None:
    project = tree(tmp_path, {**TREE, "conf/data/text.yaml": "batch_size: 4\n  bad: [\n"})
    reading = alone(project)
    [found] = problems(reading, "error")
    assert found.origin.path == "conf/data/text.yaml"
    assert values(reading)["model.width"] == 64
