"""Options that several commands have are the same in all of them."""

from __future__ import annotations

from importlib import import_module

import click
import pytest

from preflight.cli import COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_format_has_one_short_name(name: str) -> None:
    command = import_module(f"preflight.commands.{name.replace('-', '_')}").command
    [*found] = [one for one in command.params if isinstance(one, click.Option) and "--output-format" in one.opts]
    assert all("-f" in one.opts for one in found)
