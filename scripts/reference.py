"""Tables of the reference pages, made from the code, for scripts/generate.py."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_API = {
    "preflight.engine.ask": "Asked by a program",
    "preflight.vocabulary.outcome": "Asked by a program",
    "preflight.vocabulary.errors": "Asked by a program",
    "preflight.vocabulary.rule": "A rule and its case",
    "preflight.vocabulary.findings": "Findings",
    "preflight.vocabulary.words": "Words for messages",
    "preflight.fixes": "What an edit could change",
    "preflight.vocabulary.estimates": "Estimates",
    "preflight.memory.host": "Host memory",
    "preflight.memory.device": "What a model does with a micro-batch",
    "preflight.slurm": "SLURM",
    "preflight.space": "Constraints that the user states",
    "preflight.vocabulary.reading": "What a dialect hands on",
    "preflight.vocabulary.project": "What a dialect hands on",
    "preflight.vocabulary.optimizer": "Optimizers",
    "preflight.documents": "Text of files",
    "preflight": "Studies, jobs and values",
}
"""Where a public name comes from (the first that fits), and what to call that."""


def api() -> str:
    """The names of preflight.api by what they are about, each with the first sentence of its docstring."""

    from preflight import api

    rows: dict[str, list[str]] = {title: [] for title in _API.values()}
    for name in api.__all__:
        found = getattr(api, name)
        if isinstance(found, type) or inspect.isfunction(found):
            home = next(title for start, title in _API.items() if found.__module__.startswith(start))
            text = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
            rows[home].append(f"| `{name}` | {re.split(r'(?<=[.]) (?=[A-Z`])', text)[0]} |")
    tables = (f"**{title}**\n\n| name | what it is |\n|---|---|\n" + "\n".join(held) for title, held in rows.items())
    return "\n\n".join(tables) + "\n"


def commands() -> str:
    """Every command with its arguments and options, from click itself."""
    import click

    from preflight.cli import cli

    return "\n".join(_command(cli, click.Context(cli, info_name="preflight", **cli.context_settings)))


def _command(command: Any, context: Any) -> Iterator[str]:
    """A command and those below it: usage, help, and a table of its options."""
    import click

    usage = command.collect_usage_pieces(context)
    yield f"## `{context.command_path}`\n"
    yield f"```text\n{' '.join([context.command_path, *usage])}\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    rows = [_option(option, context) for option in command.get_params(context) if isinstance(option, click.Option)]
    if rows:
        yield "\n".join(["| option | meaning | default |", "|---|---|---|", *rows]) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from _command(below, click.Context(below, info_name=name, parent=context, **below.context_settings))


def _option(option: Any, context: Any) -> str:
    """A row of the table: spellings, help, default."""
    import click

    takes = "" if option.is_flag or option.count else " " + option.make_metavar(context)
    spelt = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    shown = "" if option.is_flag or option.multiple else option.get_default(context)
    default = "" if shown is None or repr(shown).startswith("Sentinel") else f"`{shown}`" if shown != "" else ""
    if isinstance(option.type, click.Choice):
        takes = " " + "|".join(str(choice) for choice in option.type.choices)
    argument = f" `{takes.strip()}`" if takes else ""
    return " | ".join(
        ["", *(cell.replace("|", "\\|") for cell in (spelt + argument, option.help or "", default)), ""]
    ).strip()


def settings() -> str:
    """Every setting of `[tool.preflight]`, from its model."""
    from preflight.vocabulary.settings import RuleSettings, Settings

    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, info in Settings.model_fields.items():
        lines.append(
            f"| `{info.alias or name}` | {_type(info.annotation)} | {_value(info.default)} | {info.description} |"
        )
    lines += ["", "A table `[tool.preflight.rules.NAME]` has the options of a rule (its page lists its own), and:", ""]
    lines += ["| setting | type |", "|---|---|"]
    lines += [f"| `{name}` | {_type(info.annotation)} |" for name, info in RuleSettings.model_fields.items()]
    return "\n".join(lines) + "\n"


def jobs() -> str:
    """Every field of a Job: its values, unit, default, and the standing of a value that no file states."""
    from preflight.vocabulary.job import Job, fields

    meanings = field_meanings()
    text: list[str] = []
    group = None
    for field in fields():
        if field.partition(".")[0] != group:
            group = field.partition(".")[0]
            text += [
                "",
                f"## {group}",
                "",
                "| field | values | unit | if no file states it | meaning |",
                "|---|---|---|---|---|",
            ]
        kind, default = _field(Job, field)
        unit, meaning = meanings[field]
        absent = "unknown, or does not apply" if default is None else f"{_value(default)} (default)"
        text.append(f"| `{field}` | {_type(kind)} | {unit} | {absent} | {meaning} |")
    return "\n".join(text[1:]) + "\n"


def batch_columns() -> str:
    """The columns of `preflight batch`."""
    from preflight.engine.score.columns import COLUMNS

    types = {str: "text", int: "integer"}
    rows = [f"| `{name}` | {types[kind]} | {meaning} |" for name, (kind, meaning) in COLUMNS.items()]
    return "\n".join(["| Column | Type | Meaning |", "| --- | --- | --- |", *rows]) + "\n"


def field_meanings() -> dict[str, tuple[str, str]]:
    """Field -> unit and meaning, as scripts/job_fields.toml has them."""
    data = tomllib.loads(Path(__file__).with_name("job_fields.toml").read_text(encoding="utf-8"))
    return {field: (unit, meaning) for field, (unit, meaning) in data.items()}


def _field(model: Any, dotted: str) -> tuple[Any, object]:
    """The type and the default of a field."""
    *path, last = dotted.split(".")
    for name in path:
        model = model.model_fields[name].annotation
    info = model.model_fields[last]
    return info.annotation, info.default


def versions() -> str:
    """The versions of what programs read."""
    from preflight.engine import baseline
    from preflight.postmortem import plain
    from preflight.reports import contract

    rows = [
        ("`check --output-format json`", contract.VERSION),
        ("`estimate --output-format json`", contract.VERSION),
        ("`postmortem --output-format json`", plain.VERSION),
        ("`check --write-baseline`", baseline.VERSION),
        ("`check --output-format sarif`", "SARIF 2.1.0"),
    ]
    lines = ["| output | version |", "|---|---|", *(f"| {output} | {version} |" for output, version in rows)]
    return "\n".join(lines) + "\n"


_NAMES = {str: "text", int: "integer", float: "number", bool: "true, false", Any: "any value", type(None): ""}


def _type(kind: Any) -> str:
    """A type in words: "integer", "list of text", the values of a choice."""
    origin, of = get_origin(kind), get_args(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in of)
    if origin is list:
        return f"list of {_type(of[0])}"
    if origin is dict:
        return "table"
    if hasattr(kind, "__metadata__"):
        return _type(kind.__origin__)
    if of:
        return " or ".join(dict.fromkeys(word for one in of if (word := _type(one))))
    return "table"


def _value(value: object) -> str:
    """A default as TOML or JSON would write it, "none" for an empty one."""
    if value is None or value in ([], {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
