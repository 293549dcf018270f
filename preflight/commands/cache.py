"""`preflight cache`: the results of checks that are kept, and the laws that were traced."""

from __future__ import annotations

import os

import click

from preflight.reports import streams
from preflight.reports.plain import written
from preflight.result_cache import folder


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Results of checks that are kept: where they are, how much they take, and taking them away."""


@command.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(output_format: str) -> None:
    """Where results and traced laws are kept, and how much they take."""
    path, why = folder.place(), _why_not()
    files = list(folder.kept(path)) if path is not None else []
    laws = _laws()
    if output_format == "json":
        document = {
            "version": 1,
            "results": {
                "path": path, "refused": why or None, "entries": len(files), "bytes": sum(one.bytes for one in files),
                "limit": folder.limit(),
            },
            "laws": {"path": laws, "entries": _count(laws)[0], "bytes": _count(laws)[1]},
        }  # fmt: skip
        streams.show(written(document), "json")
        return
    size = sum(one.bytes for one in files)
    streams.show(f"results  {streams.clean(path or 'no directory')}\n")
    streams.show(f"         {len(files)} kept, {_mib(size)} of at most {_mib(folder.limit())}\n")
    if why:
        streams.show(f"         not used: {streams.clean(why)}\n")
    streams.show(f"laws     {streams.clean(laws or 'no directory')}\n")
    streams.show(f"         {_count(laws)[0]} kept, {_mib(_count(laws)[1])}\n")


@command.command()
@click.option("--laws", is_flag=True, help="The laws that were traced as well: each takes seconds to make again.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def clear(laws: bool, output_format: str) -> None:
    """Take the kept results away."""
    removed = freed = 0
    for path in (folder.place(), _laws() if laws else None):
        for one in folder.kept(path) if path is not None else ():
            if folder.remove(one):
                removed, freed = removed + 1, freed + one.bytes
    if output_format == "json":
        streams.show(written({"version": 1, "removed": removed, "bytes": freed}), "json")
    else:
        streams.show(f"{removed} removed, {_mib(freed)}\n")


def _why_not() -> str:
    try:
        folder.results()
    except folder.Refused as error:
        return str(error)
    return ""


def _laws() -> str | None:
    return folder.laws()


def _count(path: str | None) -> tuple[int, int]:
    files = list(folder.kept(path)) if path is not None and os.path.isdir(path) else []
    return len(files), sum(one.bytes for one in files)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
