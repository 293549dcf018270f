"""`preflight cache`: the results of checks that are kept, and the laws that were traced."""

from __future__ import annotations

import click

from preflight.engine import result_cache as kept
from preflight.reports import streams
from preflight.reports.plain import written


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Results of checks that are kept: where they are, how much they take, and taking them away."""


@command.command()
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the answer is printed.",
)
def show(output_format: str) -> None:
    """Where results and traced laws are kept, and how much they take."""
    results, laws = kept.usage()
    if output_format == "json":
        streams.show(written({"version": 1, "results": results, "laws": laws}), "json")
        return
    for name, one in (("results", results), ("laws", laws)):
        most = one.get("limit")
        limit = f" of at most {_mib(most)}" if isinstance(most, int) else ""
        streams.show(f"{name:<8} {streams.clean(str(one['path'] or 'no directory'))}\n")
        streams.show(f"         {one['entries']} kept, {_mib(one['bytes'])}{limit}\n")
        if one.get("refused"):
            streams.show(f"         not used: {streams.clean(str(one['refused']))}\n")


@command.command()
@click.option("--laws", is_flag=True, help="The laws that were traced as well: each takes seconds to make again.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the answer is printed.",
)
def clear(laws: bool, output_format: str) -> None:
    """Take the kept results away."""
    removed, freed = kept.clear(laws)
    if output_format == "json":
        streams.show(written({"version": 1, "removed": removed, "bytes": freed}), "json")
    else:
        streams.show(f"{removed} removed, {_mib(freed)}\n")


def _mib(size: object) -> str:
    return f"{size / 2**20:.1f} MiB" if isinstance(size, int) else ""
