"""Which scripts are worth reading: every command that a framework's table names is in the two expressions for it."""

from __future__ import annotations

import pytest

from preflight.dialects.slurm.reader import _LAUNCH
from preflight.frameworks.table import heads
from preflight.slurm.sbatch.gate import _MAY_TRAIN

COMMANDS = sorted(head.command.name for head in heads().values() if head.command and not head.command.scripts)
"""A repository of example scripts has no command: Python starts them."""


def test_there_are_commands() -> None:
    assert {"axolotl", "yolo", "tune"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_that_starts_a_tool_is_read(command: str) -> None:
    assert _LAUNCH.search(f"{command} train config.yaml\n")
    assert _MAY_TRAIN.search(f"{command} train config.yaml\n".encode())


def test_a_script_without_a_launch_is_passed_over() -> None:
    assert not _LAUNCH.search("gzip -9 file\n")
    assert not _MAY_TRAIN.search(b"gzip -9 file\n")
