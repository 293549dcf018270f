"""`preflight machine`: the GPUs and clusters that jobs are judged against."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from preflight.commands.options import STATED
from preflight.reports import streams
from preflight.reports.style import look_for
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.words import gib


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """GPUs and clusters: what they are called and what a job really gets of them."""


@command.command("list")
def list_machines() -> None:
    """Known GPUs with what CUDA reports as their memory, and the clusters described on this computer."""
    from preflight.machines.clusters import machines_dir, saved_machines
    from preflight.machines.gpus import gpus

    look = look_for(sys.stdout)
    wide = max(len(gpu.name) for gpu in gpus())
    for gpu in gpus():
        context = f"context about {gib(gpu.context[1])}"
        streams.show(f"{look.paint(f'{gpu.name:<{wide}}', 'bold')}  {gib(gpu.capacity):>10}  {context}\n")
    for name in saved_machines():
        path = machines_dir() / f"{name}.toml"
        streams.show(f"{look.paint(streams.clean(name), 'bold')}  {streams.clean(str(path))}\n")


@command.command()
@click.argument("name", type=STATED)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(name: str, output_format: str) -> None:
    """A GPU by name, or a cluster by name or file."""
    from preflight.machines import clusters, gpus

    gpu = gpus.find_gpu(name)
    if gpu is not None:
        data = gpus.plain(gpu)
        several = gpus.ambiguity(name)
        if several:
            streams.complain(f"note: {several}")
    else:
        try:
            data = clusters.plain(clusters.find_machine(name, Path.cwd()))
        except clusters.MachineError as error:
            close = gpus.nearest(name)
            hint = f"; the closest GPUs are {', '.join(close)}" if close else ""
            raise UsageError(f"{error}{hint}") from error
    if output_format == "json":
        streams.show(json.dumps(data, indent=2) + "\n", "json")
    else:
        for line in _text(data):
            streams.show(streams.clean(line) + "\n")


_SIZES = ("capacity", "memory", "swap", "shm", "local_disk", "low", "expected", "high", "bytes")


def _blank(value: object) -> bool:
    return isinstance(value, dict) and all(one is None for one in value.values())


def _text(data: object, key: str = "", indent: int = 0) -> list[str]:
    """Plain data as indented lines, sizes in GiB."""
    lead = "  " * indent
    if isinstance(data, dict):
        lines = [f"{lead}{key}:"] if key else []
        inner = indent + bool(key)
        for name, value in data.items():
            if value not in (None, [], {}, ()) and value is not False and not _blank(value):
                lines += _text(value, str(name), inner)
        return lines
    if isinstance(data, (list, tuple)) and any(isinstance(item, dict) for item in data):
        return [line for item in data for line in _text(item, key, indent)]
    if isinstance(data, (list, tuple)):
        return [f"{lead}{key}: {', '.join(map(str, data))}"]
    size = isinstance(data, int) and not isinstance(data, bool) and any(word in key for word in _SIZES)
    return [f"{lead}{key}: {gib(data) if size and isinstance(data, int) else data}"]


@command.group("import")
def import_group() -> None:
    """Describe a cluster from what its scheduler knows."""


@import_group.command("slurm")
@click.option("--conf", type=STATED, metavar="FILE", help="Read a slurm.conf instead of asking scontrol.")
@click.option("-o", "--output", type=STATED, metavar="FILE", help="Write the machine file here.")
def import_slurm(conf: str | None, output: str | None) -> None:
    """Nodes and partitions of a SLURM cluster as a machine file."""
    from preflight.commands.import_slurm import run

    run(conf, output)
