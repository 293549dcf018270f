"""SkyPilot tasks: what `run:` starts, with the variables of the task and of the nodes, and files that are no task."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks_as_text import studies, value

from tests.recipes_as_text import TRAIN, commands

TASK = """
resources:
  accelerators: {gpus}
num_nodes: 2
envs:
  BATCH: 16
  NAME:
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py --batch-size $BATCH {more}
"""


@pytest.mark.parametrize(("more", "found"), [("", ""), ("--workers $NAME", " --workers ?"), ("--x 1", " --x 1")])
def test_the_variables_of_the_task_are_known_and_those_of_the_command_line_are_not(
    more: str, found: str, tmp_path: Path
) -> None:
    text = TASK.format(gpus="A100:4", more=more)
    assert commands("task.yaml", text, tmp_path) == [f"train.py --batch-size 16{found}"]


@pytest.mark.parametrize(
    ("gpus", "name", "count"),
    [
        ("A100:4", "A100 40GB", 4),
        ("{L4: 2}", "L4", 2),
        ("H100", "H100 80GB", 1),
        ("[A100, V100]", "?", "?"),
        ("{tpu-v4-8: 1}", "?", "?"),
        ("tpu-v4-8", "?", "?"),
        ("{L4: many}", "L4", "?"),
    ],
)
def test_the_gpus_are_those_of_the_task(gpus: str, name: str, count: object, tmp_path: Path) -> None:
    (study,) = studies(TASK.format(gpus=gpus, more=""), tmp_path, {"train.py": TRAIN}, "task.yaml")
    assert (value(study, "machine.gpu"), value(study, "parallel.ranks_per_node")) == (name, count)
    assert value(study, "parallel.nodes") == 2


@pytest.mark.parametrize(
    "text",
    [
        "run: python train.py\n",  # any tool's file may have that key
        "resources:\n  cpus: 4\nrun: python other.py\n",
        "resources: {}\nrun: [python, train.py]\n",
    ],
)
def test_other_files_are_left_alone(text: str, tmp_path: Path) -> None:
    assert commands("task.yaml", text, tmp_path) == []
