"""`preflight machine import slurm`: nodes and partitions as a machine file."""

from __future__ import annotations

from pathlib import Path

import click

from preflight.errors import UsageError


def run(conf: str | None, output: str | None) -> None:
    """Writes the machine file, or prints it where no file is named. Raises UsageError."""
    from preflight.machines.clusters import MachineError, dump_machine, save_machine
    from preflight.machines.gpus import ambiguity
    from preflight.machines.slurm_import import import_slurm

    try:
        cluster = import_slurm(Path(conf) if conf is not None else None)
        if output is not None:
            save_machine(cluster, Path(output))
    except MachineError as error:
        raise UsageError(str(error)) from error
    if output is None:
        click.echo(dump_machine(cluster), nl=False)
    for node in cluster.nodes:
        if node.gpus and node.gpu is None:
            click.echo(
                f"note: no GPU is known for node type {node.name} (GRES type {node.gpu_type}): add gpu =", err=True
            )
        elif node.gpu is not None and node.gpu_type is not None and ambiguity(node.gpu_type) is not None:
            click.echo(f"note: {ambiguity(node.gpu_type)}", err=True)
