"""What a shell completes on the command line: files, rules and GPUs. Click's own scripts do the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The shell's own completion of files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


def complete_rules(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of rules; of several, the last."""
    from click.shell_completion import CompletionItem

    from preflight.engine import registry

    before, comma, last = typed.rpartition(",")
    known = registry.summaries()
    return [
        CompletionItem(f"{before}{comma}{name}", help=known[name]) for name in sorted(known) if name.startswith(last)
    ]


def complete_gpus(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of GPUs, in any case."""
    from click.shell_completion import CompletionItem

    from preflight.machines.gpus import gpus

    names = sorted(gpu.name for gpu in gpus())
    return [CompletionItem(name) for name in names if name.lower().startswith(typed.lower())]
