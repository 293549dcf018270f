"""`preflight machine import slurm`: nodes and partitions as a machine file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.reports import streams
from preflight.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from preflight.vocabulary.machine import Cluster


def run(conf: str | None, output: str | None) -> None:
    """Writes the machine file, or prints it where no file is named. Raises UsageError."""
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
    """What the file cannot say, for the user to fill in."""
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
            yield f"{doubt}, and stops no job until gpu = says which it is ({types})"
    if cluster.path == "sinfo":
        yield (
            "scontrol does not answer; sinfo does not say which memory jobs get by default (DefMemPerCPU) and which "
            "limits are enforced: add them, or import from slurm.conf"
        )
    if conf is not None and cluster.select_type is None:
        yield f"{conf} names no SelectType: select/linear until SLURM 23.02, select/cons_tres since, which is assumed"
