"""Which primary configuration an option is composed with, and what is an error where no launch is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hydra_trees import MAIN, TREE, alone, launched, problems, tree, values

from preflight.dialects.hydra import reader as hydra
from preflight.vocabulary.reading import Call, Launch, Word
from preflight.vocabulary.values import Origin, Span, Unknown, evaluate, unknown

ROOT = "import rootutils\nroot = rootutils.setup_root(__file__)\n"


def main(name: str) -> str:
    return MAIN.replace('"config"', f'"{name}"')


def with_experiment(text: str, **more: str) -> dict[str, str]:
    primary = "defaults: [{model: small}, {experiment: null}, _self_]\nlr: 1\n"
    options = {"conf/model/small.yaml": "width: 4\n", "conf/model/large.yaml": "width: 8\ndepth: 2\n"}
    files = {"conf/train.yaml": primary, "train.py": main("train"), "conf/experiment/a.yaml": text}
    return {**files, **options, **{f"conf/{name}.yaml": body for name, body in more.items()}}


EXPERIMENT = "# @package _global_\ndefaults:\n  - override /model: large\nseed: 3\n"

# --- what is no error -----------------------------------------------------------------------------------------------


def test_an_experiment_belongs_to_the_primary_configuration_that_takes_it(tmp_path: Path) -> None:
    other = "defaults: [{experiment: null}]\npretrain: 1\n"
    files = {**with_experiment(EXPERIMENT, pretrain=other), "pretrain.py": main("pretrain")}
    reading = alone(tree(tmp_path, files), "conf/experiment/a.yaml")
    assert problems(reading) == []
    assert [link.target for link in reading.links] == ["train.py"]
    assert values(reading)["model.width"] == 8


def test_a_folder_below_a_root_that_the_program_computes(tmp_path: Path) -> None:
    other = "defaults: [{model: small}]\nport: 3\n"
    files = {**with_experiment(EXPERIMENT, convert=other), "convert.py": main("convert")}
    files["train.py"] = ROOT + main("train").replace('"conf"', 'root / "conf"')
    reading = alone(tree(tmp_path, files), "conf/experiment/a.yaml")
    assert problems(reading) == []
    assert [link.target for link in reading.links] == ["train.py"]


def test_a_program_whose_configuration_is_computed_may_take_the_option(tmp_path: Path) -> None:
    files = with_experiment("# @package _global_\ndefaults:\n  - override /data: x\n")
    files["other.py"] = MAIN.replace('"conf"', "choose()")
    reading = alone(tree(tmp_path, files), "conf/experiment/a.yaml")
    assert problems(reading, "error") == []
    assert any("Could not override 'data'" in problem.message for problem in problems(reading, "info"))
    assert reading.links == ()


def test_an_option_of_a_group_that_is_put_elsewhere(tmp_path: Path) -> None:
    files = with_experiment(EXPERIMENT)
    files["conf/train.yaml"] = "defaults: [{model@worker.actor: small}, _self_]\nlr: 1\n"
    reading = alone(tree(tmp_path, files), "conf/model/large.yaml")
    assert problems(reading) == []
    assert values(reading)["worker.actor.width"] == 8


def test_an_option_may_be_a_list(tmp_path: Path) -> None:
    files = {**with_experiment(EXPERIMENT), "conf/model/small.yaml": "- width: 4\n- width: 8\n"}
    assert problems(alone(tree(tmp_path, files), "conf/train.yaml")) == []
    assert problems(alone(tree(tmp_path, {"train.py": main("train"), "conf/train.yaml": "- 1\n"}), "conf/train.yaml"))


def test_an_option_that_a_loop_of_the_shell_chooses(tmp_path: Path) -> None:
    primary = "defaults: [{model: null}, _self_]\nlr: 1\n"
    files = {**with_experiment(EXPERIMENT), "conf/train.yaml": primary}
    project = tree(tmp_path, files)
    at = Origin("job.sh", Span(0, 5))
    words = (Word("model=", unknown("the loop chooses it", at), at),)
    reading = hydra.read(project.source("conf/train.yaml"), Call("train.py", words, {}, Launch("python")), project)
    assert problems(reading) == []


@pytest.mark.parametrize(
    "text",
    [
        "# @package _global_\ndefaults:\n  - override /hydra/sweeper/sampler: random\n",
        "# @package _global_\ndefaults:\n  - override /hydra/launcher: submitit_slurm\n",
        "# @package _global_\ndefaults:\n  - override /hydra/sweeper/sampler: tpe\n  - override /hydra/sweeper: ax\n",
    ],
)
def test_groups_of_plugins_are_not_in_the_tree(text: str, tmp_path: Path) -> None:
    assert problems(alone(tree(tmp_path, with_experiment(text)), "conf/experiment/a.yaml")) == []


def test_a_missing_file_may_add_the_group(tmp_path: Path) -> None:
    files = with_experiment("# @package _global_\ndefaults:\n  - override /data: x\n")
    files["conf/train.yaml"] = "defaults: [schema, {experiment: null}, _self_]\nlr: 1\n"
    assert problems(alone(tree(tmp_path, files), "conf/experiment/a.yaml"), "error") == []


@pytest.mark.parametrize(
    "files",
    [
        {"conf/config.yaml": "defaults: [a, _self_]\nlr: 1\n", "conf/a.yaml": "defaults: [config]\n"},
        {"conf/config.yaml": "defaults: [{model: small}, _self_, override data: x]\nlr: 1\n"},
        {"conf/config.yaml": "defaults: [_self_, _self_]\nlr: 1\n"},
    ],
)
def test_a_configuration_that_no_program_starts_is_no_error(files: Mapping[str, str], tmp_path: Path) -> None:
    project = tree(tmp_path, {**files, "conf/model/small.yaml": "width: 4\n"})
    reading = alone(project)
    assert problems(reading, "error") == []
    assert problems(reading, "info")


def sweep(params: str, sweeper: str = "basic") -> str:
    body = f"# @package _global_\ndefaults:\n  - override /hydra/sweeper: {sweeper}\n"
    return body + f"hydra:\n  sweeper:\n    params:\n{params}"


def test_a_sweep_over_a_key_that_another_option_has(tmp_path: Path) -> None:
    project = tree(tmp_path, with_experiment(sweep("      model.depth: 1,2\n")))
    assert problems(alone(project, "conf/experiment/a.yaml")) == []


def test_a_glob_over_a_group_that_has_to_be_chosen(tmp_path: Path) -> None:
    text = "defaults: [{model: '???'}, _self_]\nhydra: {sweeper: {params: {model: 'glob(*)', model.width: '4,8'}}}\n"
    files = {"conf/config.yaml": text, "train.py": MAIN}
    files |= {f"conf/model/{name}.yaml": "width: 4\n" for name in ("small", "large")}
    reading = alone(tree(tmp_path, files))
    assert problems(reading, "error") == []
    assert {axis.name for axis in reading.axes} == {"model", "model.width"}


@pytest.mark.parametrize("sweeper", ["nevergrad", "ax"])
def test_the_values_that_a_plugin_describes_are_unknown(sweeper: str, tmp_path: Path) -> None:
    files = with_experiment(
        sweep("      lr: {init: 0.02, step: 2.0, log: true}\n      model.width: choice(2, 4)\n", sweeper)
    )
    reading = alone(tree(tmp_path, files), "conf/experiment/a.yaml")
    assert problems(reading) == []
    [lr] = [setting.expr for setting in reading.settings if setting.key == "lr"]
    assert isinstance(evaluate(lr), Unknown)
    assert [axis.name for axis in reading.axes] == ["model.width"]


# --- what is one ----------------------------------------------------------------------------------------------------


def test_an_experiment_that_no_primary_configuration_takes(tmp_path: Path) -> None:
    files = with_experiment("# @package _global_\ndefaults:\n  - override /data: x\n")
    [problem] = problems(alone(tree(tmp_path, files), "conf/experiment/a.yaml"), "error")
    assert "Could not override 'data'" in problem.message
    assert problem.origin.path == "conf/experiment/a.yaml"


def test_a_sweep_over_a_key_that_no_option_has(tmp_path: Path) -> None:
    project = tree(tmp_path, with_experiment(sweep("      model.hight: 1,2\n")))
    assert problems(alone(project, "conf/experiment/a.yaml"), "error")


def test_words_of_a_launch_are_judged_as_they_are(tmp_path: Path) -> None:
    reading = launched(tree(tmp_path, {**TREE, "train.py": MAIN}), "model.dropout=0.1")
    assert problems(reading, "error")  # only the option `large` has it


def test_an_option_in_a_folder_of_a_group(tmp_path: Path) -> None:
    files = with_experiment(EXPERIMENT)
    files["conf/experiment/robust/b.yaml"] = EXPERIMENT
    reading = alone(tree(tmp_path, files), "conf/experiment/robust/b.yaml")
    [word] = reading.links[0].words
    assert (word.hydra_prefix, word.prefix, evaluate(word.value)) == ("", "experiment=", "robust/b")  # type: ignore[arg-type]
