"""Hydra trees: the values are hydra.compose's own, and every one of them knows its line."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight.dialects import hydra
from preflight.dialects.reading import Call, Launch, Problem, Reading, Word, word
from preflight.project import Project
from preflight.settings import Settings
from preflight.values import Axis, Choices, Const, Expr, Origin, Range, Ref, Span, Unknown, Value, evaluate

CONFIG = """\
defaults:
  - model: small
  - data: text
  - optional local: mine
  - _self_

lr: 1e-5
length: ${model.length}
heads: ${eval:'${model.width} // 32'}
name: run-${model.length}-${data.workers}
"""
TREE = {
    "conf/config.yaml": CONFIG,
    "conf/model/small.yaml": "_target_: os.system\nlength: 128\nwidth: 64\n",
    "conf/model/large.yaml": "defaults: [small]\nwidth: 1024\ndropout: 0.1\n",
    "conf/data/text.yaml": "batch_size: 4\nmax_length: ${length}\nworkers: ${.per_gpu}\nper_gpu: 3\n",
}


def tree(root: Path, files: Mapping[str, str]) -> Project:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(root, Settings())


def launched(project: Project, *words: str, path: str = "conf/config.yaml", **launch: object) -> Reading:
    """The reading of a configuration that a script launches with these words."""
    text = " ".join(words)
    project.overlay["job.sh"] = text
    placed, at = [], 0
    for one in words:
        placed.append(word(one, Origin("job.sh", Span(at, at + len(one)))))
        at += len(one) + 1
    call = Call("train.py", tuple(placed), {}, Launch(**launch))  # type: ignore[arg-type]
    return hydra.read(project.source(path), call, project)


def alone(project: Project, path: str = "conf/config.yaml") -> Reading:
    return hydra.read(project.source(path), None, project)


def values(reading: Reading) -> dict[str, Value]:
    return {setting.key: evaluate(setting.expr) for setting in reading.settings}


def expr(reading: Reading, key: str) -> Expr:
    [found] = [setting.expr for setting in reading.settings if setting.key == key]
    return found


def at(project: Project, origin: Origin | None) -> str:
    """Where an origin is, and its text: "conf/a.yaml:3 128"."""
    assert origin is not None
    source = project.source(origin.path)
    line, _ = source.line_column(origin.span.start)
    return f"{origin.path}:{line} {source.text[origin.span.start : origin.span.end]}"


def problems(reading: Reading, severity: str | None = None) -> list[Problem]:
    return [one for one in reading.problems if severity in (None, one.severity)]


# --- what must not be recognised ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".github/workflows/ci.yaml", "name: ci\non: push\ndefaults:\n  run:\n    shell: bash\njobs: {}\n"),
        ("compose.yaml", "services:\n  web: {image: x}\n"),
        ("deploy.yaml", "apiVersion: v1\nkind: Pod\nspec: {}\n"),
        ("sweep.yaml", "method: random\nparameters: {lr: {value: 1}}\n"),
        ("values.yaml", "defaults: 3\n"),
        ("lists.yaml", "defaults: [1, 2]\n"),
        ("hydra.yaml", "hydra: {heads: 9}\n"),
        ("broken.yaml", "defaults: [a\n"),
        ("plain.yaml", "lr: 1\nbatch_size: 4\n"),
    ],
)
def test_other_files_are_left_alone(name: str, text: str, tmp_path: Path) -> None:
    project = tree(tmp_path, {name: text})
    assert not hydra.recognises(project.source(name), project)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conf/data/text2.yaml", "defaults: [text]\nbatch_size: ${data.batch_size}\n"),
        ("lone/big.yaml", "# @package _global_\ndefaults:\n  - override /data: image\nlr: 1\n"),
        ("lone/hparams.yaml", "# @package _global_\ndefaults:\n  - override /hydra/sweeper: optuna\n"),
        ("lone/hydra/default.yaml", "defaults:\n  - override job_logging: colorlog\nrun: {dir: x}\n"),
    ],
)
def test_parts_of_an_application_that_nobody_names_are_no_applications(name: str, text: str, tmp_path: Path) -> None:
    project = tree(tmp_path, {**TREE, name: text})
    assert not hydra.recognises(project.source(name), project)


def test_a_group_of_several_configurations_belongs_to_training(tmp_path: Path) -> None:
    main = MAIN.replace('"config"', '"{}"')
    files = {
        "conf/eval.yaml": "defaults: [{model: small}, {logger: null}]\nx: 1\n", "eval.py": main.format("eval"),
        "conf/train.yaml": "defaults: [{model: small}, {logger: null}]\nlr: 1\n", "fit.py": main.format("train"),
        "conf/model/small.yaml": "a: 1\n", "conf/logger/csv.yaml": "save_dir: x\n",
    }  # fmt: skip
    project = tree(tmp_path, files)
    assert [link.target for link in alone(project, "conf/model/small.yaml").links] == ["fit.py"]
    reading = alone(project, "conf/logger/csv.yaml")
    assert values(reading)["logger.save_dir"] == "x"
    assert problems(reading) == []


def test_a_group_file_needs_its_application(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    assert hydra.recognises(project.source("conf/config.yaml"), project)
    assert not hydra.recognises(project.source("conf/data/text.yaml"), project)
    (tmp_path / "train.py").write_text(MAIN)
    project = Project(tmp_path, Settings())
    assert hydra.recognises(project.source("conf/data/text.yaml"), project)
    rooted = Project(tmp_path, Settings(roots=["conf/*.yaml"]))
    assert hydra.recognises(rooted.source("conf/data/text.yaml"), rooted)


MAIN = 'import hydra\n\n@hydra.main(config_path="conf", config_name="config", version_base=None)\ndef main(cfg): ...\n'

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


def one_word(prefix: str, value: Expr) -> Word:
    return Word(prefix, value)


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


@pytest.mark.parametrize("seed", range(60))
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
    shown = {key: tuple("???" if isinstance(v, Unknown) else v for v in value) if isinstance(value, tuple) else value
             for key, value in found.items()}  # fmt: skip
    assert shown == expected


@pytest.mark.parametrize("seed", range(60, 80))
def test_every_value_stands_where_it_says(seed: int, tmp_path: Path) -> None:
    """The text at an editable origin, read as OmegaConf reads it, is the value."""
    from preflight.documents.base import Source
    from preflight.documents.yaml import parse_yaml

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


# --- what is missing or wrong ---------------------------------------------------------------------------------------


def test_missing_files_are_gaps_and_the_rest_is_read(tmp_path: Path) -> None:
    files = dict(TREE)
    files["conf/config.yaml"] = CONFIG.replace("- model: small", "- base_from_elsewhere\n  - model: smal")
    project = tree(tmp_path, files)
    reading = alone(project)
    gaps = problems(reading, "info")
    assert len(gaps) == 2
    assert all(one.severity == "info" for one in gaps)
    assert any("did you mean 'small'" in one.message and at(project, one.origin).startswith("conf/config.yaml:3")
               for one in gaps)  # fmt: skip
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


def test_defaults_in_a_circle(tmp_path: Path) -> None:
    files = {**TREE, "conf/model/small.yaml": "defaults: [large]\nlength: 8\n"}
    project = tree(tmp_path, files)
    reading = alone(project)
    [found] = problems(reading, "error")
    assert "model/small -> model/large -> model/small" in found.message
    assert at(project, found.origin).startswith(("conf/model/large.yaml:1", "conf/model/small.yaml:1"))
    assert values(reading)["data.batch_size"] == 4


def test_interpolations_in_a_circle(tmp_path: Path) -> None:
    project = tree(tmp_path, {"conf/config.yaml": "defaults: [_self_]\na: ${b}\nb: ${c.d}\nc: {d: 'x${a}'}\ne: 1\n"})
    reading = alone(project)
    [found] = problems(reading, "error")
    assert "circle" in found.message
    assert found.origin.path == "conf/config.yaml"
    assert isinstance(values(reading)["a"], Unknown)
    assert values(reading)["e"] == 1


def test_defaults_that_multiply_without_bound(tmp_path: Path) -> None:
    files = {"conf/config.yaml": "defaults: [l0, _self_]\nx: 1\n"}
    files |= {f"conf/l{i}.yaml": f"defaults: [l{i + 1}, l{i + 1}@other]\n" for i in range(40)}
    files["conf/l40.yaml"] = "y: 1\n"
    reading = alone(tree(tmp_path, files))
    assert problems(reading, "error")
    assert values(reading)["x"] == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${now:%H}", "time of the run"),
        ("${mine:3}", "program's own"),
        ('${eval:\'__import__("os").system("x")\'}', "not evaluated"),
        ("${oc.env:SOME_UNSET_NAME}", "environment variable"),
        ("${nowhere.to.go}", "not set"),
        ("???", "command line"),
        ("${hydra:job.num}", "when the program runs"),
        ("${eval:'9**9**9'}", "failed"),
    ],
)
def test_what_cannot_be_known_says_why(value: str, reason: str, tmp_path: Path) -> None:
    project = tree(tmp_path, {"conf/config.yaml": f"defaults: [_self_]\nx: {value}\n"})
    found = values(alone(project))["x"]
    assert isinstance(found, Unknown)
    assert reason in found.reason


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


def test_broken_files_are_reported_at_their_line(tmp_path: Path) -> None:
    project = tree(tmp_path, {**TREE, "conf/data/text.yaml": "batch_size: 4\n  bad: [\n"})
    reading = alone(project)
    [found] = problems(reading, "error")
    assert found.origin.path == "conf/data/text.yaml"
    assert values(reading)["model.width"] == 64


# --- sweeps ---------------------------------------------------------------------------------------------------------


def axis(reading: Reading, name: str) -> Axis:
    [found] = [one for one in reading.axes if one.name == name]
    return found


def test_a_multirun_is_a_search_space(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(
        project, "-m", "data.batch_size=8,16,32", "lr=interval(1e-5,1e-3)", "model.length=range(64,257,64)"
    )
    batch = axis(reading, "data.batch_size").domain
    assert isinstance(batch, Choices)
    assert batch.values == (8, 16, 32)
    assert [at(project, origin) for origin in batch.origins] == ["job.sh:1 8", "job.sh:1 16", "job.sh:1 32"]
    lr, length = axis(reading, "lr").domain, axis(reading, "model.length").domain
    assert isinstance(lr, Range)
    assert isinstance(length, Range)
    assert (lr.low, lr.high, lr.step) == (1e-5, 1e-3, None)
    assert (length.low, length.high, length.size()) == (64, 256, 4)
    assert evaluate(expr(reading, "data.max_length"), {"model.length": Const(192)}) == 192
    assert problems(reading) == []


@pytest.mark.parametrize("where", ["word", "file"])
def test_the_mode_may_say_it_instead(where: str, tmp_path: Path) -> None:
    text = CONFIG + ("hydra: {mode: MULTIRUN}\n" if where == "file" else "")
    extra = ["hydra.mode=MULTIRUN"] if where == "word" else []
    reading = launched(tree(tmp_path, {**TREE, "conf/config.yaml": text}), *extra, "data.batch_size=8,16")
    assert axis(reading, "data.batch_size").domain.values == (8, 16)  # type: ignore[union-attr]
    assert problems(reading) == []


def test_swept_groups_are_branches(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(project, "--multirun", "model=small,large", "data.batch_size=1,2")
    assert [branch.fixed for branch in reading.branches] == [{"model": "small"}, {"model": "large"}]
    widths = [{one.key: evaluate(one.expr) for one in branch.settings}["model.width"] for branch in reading.branches]
    assert widths == [64, 1024]
    both = expr(reading, "model.width")
    assert [evaluate(both, {"model": Const(name)}) for name in ("small", "large")] == [64, 1024]
    assert isinstance(evaluate(expr(reading, "model.dropout"), {"model": Const("small")}), Unknown)


def test_a_group_that_an_outer_sweep_chooses(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    call = Call("train.py", (one_word("model=", Ref("\0model")),))
    reading = hydra.read(project.source("conf/config.yaml"), call, project)
    assert {tuple(branch.fixed.items()) for branch in reading.branches} == {
        (("model", "large"),), (("model", "small"),)
    }  # fmt: skip
    assert reading.axes == ()


SWEEPER = """\
defaults:
  - model: small
  - data: text
  - _self_
  - override hydra/sweeper: {sweeper}
  - override hydra/launcher: {launcher}
lr: 1
length: 2
hydra:
  sweeper:
    n_trials: 10
    params:
      lr: tag(log, interval(1e-5, 1e-2))
      model.length: range(64, 256, 64)
      data.batch_size: choice(8, 16)
"""


@pytest.mark.parametrize(("sweeper", "last"), [("optuna", 256), ("basic", 192)])
def test_the_sweepers_own_parameters(sweeper: str, last: int, tmp_path: Path) -> None:
    """Optuna's sweeper counts the stop of a range of whole numbers in, Hydra's own does not."""
    text = SWEEPER.format(sweeper=sweeper, launcher="basic").replace("    n_trials: 10\n", "")
    project = tree(tmp_path, {**TREE, "conf/config.yaml": text})
    reading = launched(project, "-m")
    length, lr = axis(reading, "model.length").domain, axis(reading, "lr").domain
    assert isinstance(length, Range)
    assert isinstance(lr, Range)
    assert (length.low, length.high, lr.log) == (64, last, True)
    batch = axis(reading, "data.batch_size")
    assert isinstance(batch.domain, Choices)
    assert [at(project, origin) for origin in batch.domain.origins] == [
        "conf/config.yaml:14 8",
        "conf/config.yaml:14 16",
    ]
    assert launched(project, "lr=3").axes == ()


@pytest.mark.parametrize(
    ("launcher", "extra", "at_once"),
    [("basic", "", None), ("joblib", "", 2), ("joblib", "    n_jobs: 4\n", 4), ("submitit_slurm", "", None)],
)
def test_trials_that_share_the_machine(launcher: str, extra: str, at_once: int | None, tmp_path: Path) -> None:
    """The basic launcher runs what the sweeper hands over one after the other; joblib's runs it at once."""
    text = SWEEPER.format(sweeper="optuna", launcher=launcher).replace("    n_trials: 10\n", extra)
    reading = launched(tree(tmp_path, {**TREE, "conf/config.yaml": text}), "-m")
    found = {binding.field: evaluate(binding.expr) for binding in reading.bindings}
    assert found == ({} if at_once is None else {"parallel.trials_per_gpu": at_once})


def test_the_submitit_request(tmp_path: Path) -> None:
    launcher = (
        "hydra:\n  launcher:\n    mem_gb: 64\n    gpus_per_node: 4\n    nodes: 2\n"
        "    tasks_per_node: ${.gpus_per_node}\n    cpus_per_task: 8\n    partition: gpu\n"
        "    timeout_min: 600\n    memory: 3\n"
    )
    text = CONFIG.replace("  - _self_\n", "  - _self_\n  - override hydra/launcher: submitit_slurm\n") + launcher
    project = tree(tmp_path, {**TREE, "conf/config.yaml": text})
    reading = launched(project, "-m", "model.length=64,128")
    request = reading.request
    assert request is not None
    assert (request.memory, request.gpus_per_node, request.nodes, request.tasks_per_node) == (64 * 2**30, 4, 2, 4)
    assert (request.cpus_per_task, request.partition, request.time_minutes) == (8, "gpu", 600)
    assert at(project, request.origins["memory"]).endswith(" 64")
    [problem] = problems(reading, "error")
    assert "unknown key 'memory'" in problem.message
    assert launched(project, "lr=1").request is None


def test_too_many_compositions_are_said(tmp_path: Path) -> None:
    files = {**TREE, **{f"conf/model/m{i}.yaml": f"width: {i}\nlength: 1\n" for i in range(40)}}
    project = tree(tmp_path, files)
    reading = launched(project, "-m", "model=" + ",".join(f"m{i}" for i in range(40)))
    assert len(reading.branches) == hydra.MAX_COMPOSITIONS
    assert any("combinations of groups" in one.message for one in reading.problems)


# --- files that are checked alone -----------------------------------------------------------------------------------


def test_a_configuration_finds_its_program(tmp_path: Path) -> None:
    project = tree(tmp_path, {**TREE, "train.py": MAIN})
    [link] = alone(project).links
    assert (link.kind, link.target, link.words) == ("program", "train.py", ())
    [link] = alone(project, "conf/data/text.yaml").links
    assert (link.target, link.words) == ("train.py", ())
    [link] = alone(project, "conf/model/large.yaml").links
    assert [(one.prefix, evaluate(one.value)) for one in link.words if one.value] == [("model=", "large")]


def test_applications_that_train_nothing_say_so(tmp_path: Path) -> None:
    project = tree(
        tmp_path, {"a.yaml": "defaults: [_self_]\nurl: x\nport: 3\n", "b.yaml": "defaults: [_self_]\nlr: 1\n"}
    )
    assert not alone(project, "a.yaml").trains
    assert alone(project, "b.yaml").trains


def test_an_experiment_is_added(tmp_path: Path) -> None:
    experiment = "# @package _global_\ndefaults:\n  - override /model: large\ndata: {batch_size: 64}\n"
    project = tree(tmp_path, {**TREE, "train.py": MAIN, "conf/experiment/big.yaml": experiment})
    reading = alone(project, "conf/experiment/big.yaml")
    [link] = reading.links
    assert [(one.hydra_prefix, one.prefix) for one in link.words] == [("+", "experiment=")]
    assert (values(reading)["model.width"], values(reading)["data.batch_size"]) == (1024, 64)


def test_another_name_and_folder_on_the_command_line(tmp_path: Path) -> None:
    files = {**TREE, "conf/other.yaml": "defaults: [model: large]\nx: 1\n", "more/model/large.yaml": "width: 5\n"}
    reading = launched(tree(tmp_path, files), "--config-name=other", "--config-dir", "more")
    assert values(reading)["x"] == 1
    assert values(reading)["model.width"] == 1024


def test_unsaved_texts_are_composed(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE).with_overlay({"conf/model/small.yaml": "length: 9\nwidth: 64\n"})
    assert values(alone(project))["length"] == 9


def test_nothing_leaves_the_project(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("secret: 1\n")
    text = "defaults:\n  - ../../outside\n  - _self_\nhydra: {searchpath: ['file:///etc', 'pkg://os', '../..']}\nx: 1\n"
    reading = alone(tree(tmp_path / "root", {"conf/config.yaml": text}))
    assert "secret" not in values(reading)
    assert values(reading)["x"] == 1
    assert sum("outside the project" in one.message for one in reading.problems) == 3


def test_a_million_values_and_deep_texts_do_not_hang(tmp_path: Path) -> None:
    lines = ["defaults: [_self_]", "x0: 0123456789"]
    lines += [f"x{i}: ${{x{i - 1}}}${{x{i - 1}}}" for i in range(1, 50)]
    found = values(alone(tree(tmp_path, {"conf/config.yaml": "\n".join(lines) + "\n"})))
    assert found["x3"] == "0123456789" * 8 or isinstance(found["x3"], str)
    assert isinstance(found["x49"], Unknown)


# --- structured configurations ---------------------------------------------------------------------------------------

STRUCTURED = """\
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, List, Optional

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import II, MISSING

EXTRA = ["a", "b"]


class Precision(Enum):
    bf16 = 1
    fp32 = 2


@dataclass
class Optimizer:
    lr: float = 1e-3
    steps: int = compute_steps()


@dataclass
class Model:
    length: int = 128
    width: int = MISSING
    heads: int = II("model.length")


@dataclass
class Large(Model):
    length: int = 1_024
    layers: List[int] = field(default_factory=lambda: [1, 2])


@dataclass
class Base:
    defaults: List[Any] = field(default_factory=lambda: [{"model": "small"}, "_self_"])
    seed: int = -1
    precision: Precision = Precision.bf16
    optimizer: Optimizer = field(default_factory=Optimizer)
    tuned: Optimizer = Optimizer(lr=0.5)
    name: str = MISSING
    tags: List[str] = field(default_factory=lambda: EXTRA)
    note: Optional[str] = None


cs = ConfigStore.instance()
cs.store(name="base_schema", node=Base)
cs.store(group="model", name="small", node=Model)
cs.store("large", Large, "model")


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg): ...
"""


def test_classes_that_the_program_registers(tmp_path: Path) -> None:
    text = "defaults:\n  - base_schema\n  - _self_\n\nname: x\noptimizer:\n  lr: 0.1\nmodel:\n  width: 64\n"
    project = tree(tmp_path, {"conf/config.yaml": text, "train.py": STRUCTURED})
    reading = alone(project)
    found = values(reading)
    assert isinstance(found.pop("optimizer.steps"), Unknown)
    assert isinstance(found.pop("tuned.steps"), Unknown)
    assert found == {
        "model.length": 128, "model.width": 64, "model.heads": 128, "seed": -1, "precision": "bf16",
        "optimizer.lr": 0.1, "tuned.lr": 0.5, "name": "x", "tags": ("a", "b"), "note": None,
    }  # fmt: skip
    assert problems(reading) == []
    assert at(project, expr(reading, "model.length").origin) == "train.py:25 128"
    large = launched(project, "model=large")
    assert (values(large)["model.length"], values(large)["model.layers"]) == (1024, (1, 2))
    assert problems(large) == []


def test_hydra_core_is_imported_only_to_compose(tmp_path: Path) -> None:
    project = tree(
        tmp_path, {**TREE, "plain.yaml": "lr: 1\n", "sweep.yaml": "method: grid\nparameters: {x: {value: 1}}\n"}
    )
    code = (
        "import sys\nfrom pathlib import Path\nfrom preflight.project import Project\n"
        "from preflight.settings import Settings\nfrom preflight.dialects import recognise\n"
        "project = Project(Path(sys.argv[1]), Settings())\n"
        "def read(name):\n    found = recognise(project.source(name), project)\n"
        "    return found and found.read(project.source(name), None, project)\n"
        "assert read('plain.yaml') is None and read('sweep.yaml').dialect == 'wandb'\n"
        "heavy = {'hydra', 'omegaconf', 'antlr4', 'ruamel', 'torch', 'numpy', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert read('conf/config.yaml').dialect == 'hydra' and 'hydra' in sys.modules\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(project.root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- objects ---

LIGHTNING_APP = {
    "train.py": (
        "import hydra\n@hydra.main(config_path='conf', config_name='config', version_base=None)\ndef main(cfg):\n"
        "    trainer = hydra.utils.instantiate(cfg.trainer)\n    trainer.fit(hydra.utils.instantiate(cfg.model))\n"
        "if __name__ == '__main__':\n    main()\n"
    ),
    "conf/config.yaml": "defaults:\n  - trainer: one\n  - model: small\n",
    "conf/trainer/one.yaml": "_target_: lightning.Trainer\nprecision: bf16-mixed\ndevices: 2\n",
    "conf/model/small.yaml": "_target_: transformers.GPT2LMHeadModel.from_pretrained\n_args_: []\n",
}


def test_targets_of_the_configuration_are_what_the_program_does(tmp_path: Path) -> None:
    project = tree(tmp_path, LIGHTNING_APP)
    found = {binding.field: evaluate(binding.expr) for binding in alone(project).bindings}
    assert (found["train.precision"], found["parallel.ranks_per_node"]) == ("bf16-mixed", 2)


def test_a_swept_group_of_objects_says_something_per_option(tmp_path: Path) -> None:
    two = "_target_: lightning.Trainer\nprecision: 32-true\ndevices: 4\nstrategy: ddp\n"
    project = tree(tmp_path, {**LIGHTNING_APP, "conf/trainer/two.yaml": two})
    reading = launched(project, "-m", "trainer=one,two")
    ranks = next(binding.expr for binding in reversed(reading.bindings) if binding.field == "parallel.ranks_per_node")
    assert [evaluate(ranks, {"trainer": Const(name)}) for name in ("one", "two")] == [2, 4]
