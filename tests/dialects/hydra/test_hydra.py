"""Hydra trees: the values are hydra.compose's own, and every one of them knows its line."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
from hydra_trees import TREE, alone, at, expr, launched, one_word, problems, tree, values
from thorough import sample

from preflight.dialects.hydra import reader as hydra
from preflight.vocabulary.reading import Call, word
from preflight.vocabulary.values import Const, Origin, Ref, Span, Unknown, evaluate

# --- composition ----------------------------------------------------------------------------------------------------


def test_values_and_their_lines(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = alone(project)
    found = values(reading)
    assert found["lr"] == 1e-5
    assert (found["length"], found["data.max_length"], found["data.workers"]) == (128, 128, 3)
    assert (found["heads"], found["name"]) == (2, "run-128-3")
    assert found["model._target_"] == "os.system"
    assert at(project, expr(reading, "model.width").origin) == "conf/model/small.yaml:3 64"
    assert set(reading.reads) == {"conf/model/small.yaml", "conf/data/text.yaml"}
    assert problems(reading) == []


def test_every_hop_of_an_interpolation(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    origin = expr(alone(project), "data.max_length").origin
    assert at(project, origin) == "conf/model/small.yaml:2 128"
    assert origin is not None
    assert origin.editable
    assert [at(project, hop) for hop in origin.via] == [
        "conf/config.yaml:8 ${model.length}",
        "conf/data/text.yaml:2 ${length}",
    ]


def test_a_table_that_is_referred_to_is_there_by_its_keys(tmp_path: Path) -> None:
    text = "defaults: [_self_]\na: {b: {c: 1, d: ['x', {e: 2}]}, f: '${a.b.c}'}\ncopy: ${a}\nlast: ${copy.b.c}\n"
    project = tree(tmp_path, {"conf/config.yaml": text})
    reading = alone(project)
    found = values(reading)
    assert found["copy"] == {"b": {"c": 1, "d": ("x", {"e": 2})}, "f": 1}
    assert (found["copy.b.c"], found["copy.f"], found["last"]) == (1, 1, 1)
    assert at(project, expr(reading, "copy.b.c").origin) == "conf/config.yaml:2 1"


def test_overrides_win_and_keep_their_place(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(project, "data.batch_size=96", "model=large", "+data.shuffle=true", "~lr", "model.length=1_000")
    found = values(reading)
    assert (found["data.batch_size"], found["model.width"], found["data.shuffle"]) == (96, 1024, True)
    assert (found["length"], found["model.dropout"]) == (1000, 0.1)
    assert "lr" not in found
    assert at(project, expr(reading, "data.batch_size").origin) == "job.sh:1 96"
    [setting] = [one for one in reading.settings if one.key == "data.batch_size"]
    assert setting.rank > 0
    assert problems(reading) == []


def test_an_expression_of_the_caller_goes_through_interpolations(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    swept = Ref("tokens", Origin("sweep.yaml", Span(0, 1)))
    call = Call("train.py", (word("x=1"), one_word("model.length=", swept)))
    reading = hydra.read(project.source("conf/config.yaml"), call, project)
    assert evaluate(expr(reading, "data.max_length"), {"tokens": Const(7)}) == 7


# --- the property: hydra.compose says the same ----------------------------------------------------------------------


def random_tree(seed: int) -> tuple[dict[str, str], list[str]]:
    """A random configuration tree with groups, packages, nested defaults, and overrides that it accepts."""
    draw = random.Random(seed)
    keys = ["a", "b", "c", "d"]
    groups = {"model": ["small", "large"], "data": ["text", "image"], "data/aug": ["none", "crop"]}

    def body(depth: int = 0) -> list[str]:
        lines = []
        for key in draw.sample(keys, draw.randint(1, 4)):
            kind = draw.randint(0, 5 if depth < 2 else 3)
            scalar = draw.choice(["1", "2.5", "1e-3", "true", "no", "text", "null", "'7'", "'???'", "1_000"])
            if kind <= 2:
                lines.append(f"{key}: {scalar}")
            elif kind == 3:
                lines.append(f"{key}: [{draw.randint(0, 9)}, x]")
            else:
                lines.append(f"{key}:")
                lines += [f"  {line}" for line in body(depth + 1)]
        return lines

    files = {}
    for group, options in groups.items():
        for option in options:
            header = draw.choice(["", "", f"# @package _global_.{draw.choice(keys)}", "# @package _group_"])
            listed = ["defaults:", f"  - aug: {draw.choice(groups['data/aug'])}"] if group == "data" else []
            listed += ["  - _self_"] if listed and draw.random() < 0.5 else []
            files[f"conf/{group}/{option}.yaml"] = "\n".join([header, *listed, *body()]).lstrip("\n") + "\n"
    at_package = draw.choice(["model: small", "model@b: large", "model@_global_: small"])
    entries = [f"  - {at_package}", f"  - data: {draw.choice(groups['data'])}"]
    entries.insert(draw.randint(0, 2), "  - _self_")
    if draw.random() < 0.5:
        entries.append(f"  - override data/aug: {draw.choice(groups['data/aug'])}")
    extra = ["left: ${right}", "right: 5", "both: ${left}-${right}", "env: ${oc.env:NOT_SET_ANYWHERE,9}"]
    files["conf/config.yaml"] = "\n".join(["defaults:", *entries, *body(), *extra]) + "\n"
    overrides = draw.sample(["right=6", "data=image", "+new.key=[1,2]", "++left=x", "data/aug=crop", "~both"], 3)
    return files, overrides


def composed_by_hydra(folder: Path, overrides: list[str]) -> dict[str, object]:
    """Leaves of what hydra.compose makes, resolved one by one."""
    from hydra import compose, initialize_config_dir
    from omegaconf import DictConfig, OmegaConf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with initialize_config_dir(str(folder), version_base="1.1"):
            config = compose("config", overrides)
    found: dict[str, object] = {}

    def walk(node: DictConfig, prefix: str) -> None:
        for key in node:
            name = f"{prefix}{key}"
            if OmegaConf.is_missing(node, key):
                found[name] = "???"
            elif isinstance(node[key], DictConfig):
                walk(node[key], f"{name}.")
            elif OmegaConf.is_list(node[key]):
                found[name] = tuple(OmegaConf.to_container(node[key], resolve=True))  # type: ignore[arg-type]
            else:
                found[name] = node[key]

    walk(config, "")
    return found


@pytest.mark.parametrize("seed", sample(range(60), 24))
def test_composed_values_are_hydras_own(seed: int, tmp_path: Path) -> None:
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    files, overrides = random_tree(seed)
    project = tree(tmp_path, files)
    try:
        expected = composed_by_hydra(tmp_path / "conf", overrides)
    except (HydraException, OmegaConfBaseException):
        expected = None
    reading = launched(project, *overrides)
    assert not GlobalHydra.instance().is_initialized()
    if expected is None:  # Hydra refuses it: so must we, at a line, and read the rest
        assert problems(reading, "error")
        return
    assert problems(reading, "error") == []
    found = {key: "???" if isinstance(value, Unknown) else value for key, value in values(reading).items()}
    shown = {
        key: tuple("???" if isinstance(v, Unknown) else v for v in value) if isinstance(value, tuple) else value
        for key, value in found.items()
    }
    assert shown == expected


@pytest.mark.parametrize("seed", range(60, 80))
def test_every_value_stands_where_it_says(seed: int, tmp_path: Path) -> None:
    """The text at an editable origin, read as OmegaConf reads it, is the value."""
    from preflight.documents.yaml import parse_yaml
    from preflight.vocabulary.text import Source

    files, _ = random_tree(seed)
    project = tree(tmp_path, files)
    checked = 0
    for setting in alone(project).settings:
        origin = setting.expr.origin
        if isinstance(setting.expr, Const) and origin is not None and origin.editable:
            if isinstance(setting.expr.value, Unknown):
                continue
            text = project.source(origin.path).text[origin.span.start : origin.span.end]
            assert parse_yaml(Source("x", text), "omegaconf").value() == setting.expr.value
            checked += 1
    assert checked > 3
