"""DVC pipelines: the commands of the stages with the values of their parameters, and files that start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes_as_text import batches, commands

PARAMETERS = {"params.yaml": "train:\n  b: 8\n  amp: true\nlist: [2, 4]\n"}
NOTHING = {
    "no program of the project": "stages:\n  a:\n    cmd: python other.py\n",
    "no stage": "plots:\n  - a.csv\ncmd: python train.py\n",
    "not a mapping": "stages: [cmd]\n",
}
READ = {
    "a plain stage": ("stages:\n  a:\n    cmd: python train.py --batch-size 16\n", ["train.py --batch-size 16"]),
    "several commands": (
        "stages:\n  a:\n    cmd:\n      - ls\n      - python train.py --batch-size 16\n",
        ["train.py --batch-size 16"],
    ),
    "parameters": (
        "stages:\n  a:\n    cmd: python train.py --batch-size ${train.b} --amp ${train.amp} --n ${list[1]}\n",
        ["train.py --batch-size 8 --amp true --n 4"],
    ),
    "own values come first": (
        "vars:\n  - train:\n      b: 3\nstages:\n  a:\n    cmd: python train.py --batch-size ${train.b}\n",
        ["train.py --batch-size 3"],
    ),
    "a file of values": (
        "vars: [more.json]\nstages:\n  a:\n    cmd: python train.py --batch-size ${big.b}\n",
        ["train.py --batch-size 64"],
    ),
    "for each": (
        "stages:\n  a:\n    foreach: [2, 4]\n    do:\n      cmd: python train.py --batch-size ${item}\n",
        ["train.py --batch-size 2", "train.py --batch-size 4"],
    ),
    "for each of a mapping": (
        "stages:\n  a:\n    foreach:\n      one: {b: 2}\n    do:\n      cmd: python train.py --batch-size ${item.b}\n",
        ["train.py --batch-size 2"],
    ),
    "for each of a list that is named": (
        "stages:\n  a:\n    foreach: ${list}\n    do:\n      cmd: python train.py --batch-size ${item}\n",
        ["train.py --batch-size ?"],
    ),
    "a matrix": (
        "stages:\n  a:\n    matrix: {b: [2, 4], w: [1]}\n"
        "    cmd: python train.py --batch-size ${item.b} --workers ${item.w}\n",
        ["train.py --batch-size 2 --workers 1", "train.py --batch-size 4 --workers 1"],
    ),
    "a folder": ("stages:\n  a:\n    wdir: sub\n    cmd: python main.py\n", ["sub/main.py"]),
    "no value": ("stages:\n  a:\n    cmd: python train.py --batch-size ${nothing}\n", ["train.py --batch-size ?"]),
    "a mapping is no value": ("stages:\n  a:\n    cmd: python train.py ${train}\n", ["train.py ?"]),
    "several lines": (
        "stages:\n  a:\n    cmd: |\n      ls\n      python train.py --batch-size 16\n",
        ["train.py --batch-size 16"],
    ),
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_a_pipeline_that_starts_nothing(text: str, tmp_path: Path) -> None:
    assert commands("dvc.yaml", text, tmp_path, PARAMETERS) == []


@pytest.mark.parametrize(("text", "found"), READ.values(), ids=READ)
def test_the_commands_of_a_pipeline(text: str, found: list[str], tmp_path: Path) -> None:
    files = {**PARAMETERS, "more.json": '{"big": {"b": 64}}', "sub/main.py": "print()\n"}
    assert commands("dvc.yaml", text, tmp_path, files) == found


def test_parameters_that_cannot_be_read(tmp_path: Path) -> None:
    text = "stages:\n  a:\n    cmd: python train.py --batch-size ${train.b}\n"
    assert commands("dvc.yaml", text, tmp_path, {"params.yaml": "train: [\n"}) == ["train.py --batch-size ?"]


def test_a_finding_points_to_the_parameter(tmp_path: Path) -> None:
    text = "stages:\n  a:\n    cmd: python train.py --batch-size ${train.b}\n"
    assert batches("dvc.yaml", text, tmp_path, PARAMETERS) == [(8, "params.yaml:2")]
