"""`preflight machine`: the GPUs and clusters that jobs can run on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, format_option
from preflight.reports import streams
from preflight.reports.style import look_for, table
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.words import gib

if TYPE_CHECKING:
    from preflight.vocabulary.machine import Cluster


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List GPUs and clusters, show one, and import a SLURM cluster."""


@command.command("list")
def list_machines() -> None:
    """List the known GPUs with their memory as CUDA reports it, and the clusters described on this computer."""
    from preflight.machines.clusters import machines_dir, saved_machines
    from preflight.machines.gpus import gpus

    look = look_for(sys.stdout)
    known = [((gpu.name, "bold"), gib(gpu.capacity), f"context about {gib(gpu.context[1])}") for gpu in gpus()]
    described = [((name, "bold"), str(machines_dir() / f"{name}.toml")) for name in saved_machines()]
    lines = [*table(known, look, right=(1,), indent=0), *table(described, look, indent=0)]
    streams.show("\n".join(lines) + "\n")


@command.command()
@click.argument("name", type=STATED)
@format_option
def show(name: str, output_format: str) -> None:
    """Show a GPU by its name, or a cluster by its name or file."""
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
    """Describe a cluster from the data of its scheduler."""


@import_group.command("slurm")
@click.option("--conf", type=STATED, metavar="FILE", help="Read a slurm.conf instead of asking scontrol.")
@click.option("-o", "--output", type=STATED, metavar="FILE", help="Write the machine file here.")
def import_from_slurm(conf: str | None, output: str | None) -> None:
    """Write the nodes and partitions of a SLURM cluster to a machine file, or print them."""
    from preflight.machines.clusters import MachineError, dump_machine
    from preflight.reports.outputs import write_output
    from preflight.slurm.import_.importer import import_slurm

    try:
        cluster = import_slurm(Path(conf) if conf is not None else None)
        if output is not None:
            write_output(Path(output), dump_machine(cluster))
    except MachineError as error:
        raise UsageError(str(error)) from error
    if output is None:
        streams.show(dump_machine(cluster), "json")
    for note in dict.fromkeys(_notes(cluster, conf)):
        streams.complain(f"note: {note}")


def _notes(cluster: Cluster, conf: str | None) -> Iterator[str]:
    """Values that the user has to add to the machine file."""
    from preflight.machines.gpus import ambiguity

    doubtful: dict[str, list[str]] = {}
    for node in cluster.nodes:
        if node.gpus and node.gpu is None:
            kind = f"GRES type {node.gpu_type}" if node.gpu_type else "its GRES has no type"
            yield f"no GPU is known for node type {node.name} ({kind}): add gpu ="
        elif node.gpu is not None:
            doubtful.setdefault(ambiguity(node.gpu) or "", []).append(node.name)
        if node.memory is None:
            yield f"no RealMemory is known for node type {node.name}: add memory ="
    for doubt, names in doubtful.items():
        if doubt:
            types = f"node type{'s' * (len(names) > 1)} {', '.join(names)}"
            yield f"{doubt}: add gpu =; until then no job is stopped for its GPU memory ({types})"
    if cluster.path == "sinfo":
        yield (
            "scontrol does not answer; sinfo does not say which memory jobs get by default (DefMemPerCPU) and which "
            "limits are enforced: add them, or import from slurm.conf"
        )
    if conf is not None and cluster.select_type is None:
        yield f"{conf} has no SelectType: select/linear is assumed until SLURM 23.02, select/cons_tres since"
