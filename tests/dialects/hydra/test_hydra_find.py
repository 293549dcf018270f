"""Which files belong to a Hydra application, and which program a file is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra_trees import MAIN, TREE, alone, launched, problems, tree, values

from preflight.dialects.hydra import reader as hydra
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, evaluate

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
        "conf/eval.yaml": "defaults: [{model: small}, {logger: null}]\nx: 1\n",
        "eval.py": main.format("eval"),
        "conf/train.yaml": "defaults: [{model: small}, {logger: null}]\nlr: 1\n",
        "fit.py": main.format("train"),
        "conf/model/small.yaml": "a: 1\n",
        "conf/logger/csv.yaml": "save_dir: x\n",
    }
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
