"""`preflight model`: models known by name, and laws for those that are not."""

from __future__ import annotations

import json
import sys

import click

from preflight.errors import UsageError
from preflight.reports.style import look_for


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Models whose memory is known by name, and laws for others."""


@command.command("list")
def list_models() -> None:
    """Models known by name: their dimensions ship with the package."""
    from preflight.memory.device import catalogue

    look = look_for(sys.stdout)
    names = catalogue.names()
    wide = max(map(len, names))
    for name in names:
        model = catalogue.find(name)
        if model is not None:
            click.echo(f"{look.paint(f'{name:<{wide}}', 'bold')}  {model.architecture}, {model.task}", color=True)


@command.command()
@click.argument("name")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(name: str, output_format: str) -> None:
    """A model's dimensions as its public configuration has them."""
    from preflight.memory.device import catalogue

    model = catalogue.find(name)
    if model is None:
        raise UsageError(unknown_model(name))
    data = {
        "name": model.name,
        "architecture": model.architecture,
        "task": model.task,
        "target": model.target,
        "aliases": list(model.aliases),
        "config": dict(model.config),
    }
    if output_format == "json":
        click.echo(json.dumps(data, indent=2))
        return
    for key, value in data.items():
        if key == "config":
            wide = max(len(option) for option in model.config)
            for option, size in model.config.items():
                click.echo(f"  {option:<{wide}}  {f'{size:,}' if type(size) is int else size}")
        elif value:
            click.echo(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


def unknown_model(name: str) -> str:
    """What to say about a name that is no model's."""
    from preflight.memory.device import catalogue

    close = catalogue.nearest(name)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; preflight model list shows the known ones"
    return f"no model is known as {name}{hint}"
