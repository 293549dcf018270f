"""The reference pages say everything that the code has: options, settings, fields of a Job."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from pages_of_the_guide import ROOT, script

from preflight.cli import COMMANDS, cli
from preflight.vocabulary.job import fields
from preflight.vocabulary.settings import Settings

COMMANDS_PAGE = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")


def every_command(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(
                below, click.Context(below, info_name=name, parent=context, **below.context_settings)
            )


EVERY = dict(every_command(cli, click.Context(cli, info_name="preflight", **cli.context_settings)))


@pytest.mark.parametrize("path", EVERY)
def test_every_option_of_every_command_is_on_the_page_with_its_meaning(path: str) -> None:
    _, _, after = COMMANDS_PAGE.partition(f"\n## `{path}`\n")
    assert after, path
    section = after.partition("\n## ")[0]
    for option in EVERY[path].params:
        if isinstance(option, click.Option):
            assert option.help, f"{path} {option.opts}: no help"
            assert all(f"`{name}`" in section for name in option.opts), f"{path} {option.opts}"


def test_all_commands_are_there() -> None:
    assert {f"preflight {name}" for name in COMMANDS} <= set(EVERY)


def test_every_field_of_a_job_has_a_meaning_and_no_other_has() -> None:
    assert set(script("reference").field_meanings()) == set(fields())


def test_every_setting_has_a_meaning() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for name, info in Settings.model_fields.items():
        assert info.description, name
        assert f"| `{info.alias or name}` |" in page, name


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (str | None, "text"),
        (list[str] | str | None, "list of text or text"),
        (dict[str, str], "table"),
        (bool, "true, false"),
    ],
)
def test_types_in_words(kind: object, words: str) -> None:
    assert script("reference")._type(kind) == words
