"""`preflight rule`: lists the rules, or shows the page of one."""

from __future__ import annotations

import sys

import click

from preflight.commands.completion import complete_rules
from preflight.commands.options import STATED
from preflight.reports import streams
from preflight.reports.style import look_for, table
from preflight.vocabulary.errors import UsageError, suggestion


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=STATED, required=False, shell_complete=complete_rules)
def command(name: str | None) -> None:
    """List the rules, or show one: what it finds, why it matters, how it is fixed."""
    from preflight.engine import registry
    from preflight.reports.rule_page import page

    if name is None:
        rows = [((rule, "bold"), summary) for rule, summary in sorted(registry.summaries().items())]
        streams.show("\n".join(table(rows, look_for(sys.stdout), indent=0)) + "\n")
        return
    known = registry.rules()
    if name in known:
        streams.show(page(known[name]))
    elif name in registry.OWN:
        streams.show(f"# {name}\n\n{registry.OWN[name]}\n")
    else:
        raise UsageError(f"there is no rule {name}{suggestion(name, (*known, *registry.OWN))}")
