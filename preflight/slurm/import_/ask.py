"""Asks a cluster's own commands to describe it: scontrol, else sinfo.

scontrol's text says the most in every version. JSON up to 25.11 does not name the default partition, and JSON of 22.05
has no partitions. So when there is only sinfo, partitions come from its columns.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from itertools import chain

from preflight.slurm.import_.json import lines_of
from preflight.slurm.import_.lines import ConfigurationLine, read_lines
from preflight.system.processes import ask_program
from preflight.vocabulary.errors import MachineError

SECONDS = 30
"""Seconds that a command may take: it only asks the controller."""

SCONTROL = (
    ("scontrol", "show", "config", "-o"),
    ("scontrol", "show", "node", "--all", "-o"),
    ("scontrol", "show", "partition", "--all", "-o"),
)
"""`--all` includes partitions that are hidden from the user, and their nodes."""

COLUMNS = {
    "nodename": "%N", "partitionname": "%P", "cpus": "%c", "sockets": "%X", "corespersocket": "%Y",
    "threadspercore": "%Z", "realmemory": "%m", "tmpdisk": "%d", "gres": "%G", "features": "%f", "maxtime": "%l",
    "defaulttime": "%L", "oversubscribe": "%h", "maxcpuspernode": "%B", "sizes": "%s",
}  # fmt: skip
"""Key of slurm.conf -> column of sinfo(1); `sizes` is the range of nodes that a job may have."""

_OF_NODES = ("nodename", "cpus", "sockets", "corespersocket", "threadspercore", "realmemory", "tmpdisk", "gres",
             "features")  # fmt: skip


def ask() -> tuple[tuple[ConfigurationLine, ...], str]:
    """The cluster as lines of a slurm.conf, and the command that described it. Raises MachineError."""
    try:
        text = "\n".join(_said(command) for command in SCONTROL)
    except MachineError as error:
        if isinstance(error, _Silent):
            raise  # sinfo would not answer either
        try:
            return _by_sinfo(), "sinfo"
        except MachineError:
            raise error from None
    text = text.replace("#", "\\#")  # these are no comments: a node's OS contains "#1 SMP", before its memory
    return tuple(read_lines(text, "scontrol")), "scontrol"


class _Silent(MachineError):
    """The controller does not answer."""


def _said(command: tuple[str, ...]) -> str:
    shown = " ".join(command)
    try:
        found = ask_program(command, SECONDS)
    except FileNotFoundError:
        raise MachineError(
            f"{command[0]} is not found: run this on a login node, or give slurm.conf with --conf"
        ) from None
    except OSError as error:
        raise MachineError(f"{command[0]} cannot be run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise _Silent(f"{shown} did not answer within {SECONDS} s: can the controller be reached?") from None
    if found.returncode:
        said = (found.stderr.strip() or found.stdout.strip()).splitlines()
        raise MachineError(f"{shown} failed: {said[-1] if said else f'exit status {found.returncode}'}")
    return found.stdout


def _by_sinfo() -> tuple[ConfigurationLine, ...]:
    rows = tuple(columns(_said(("sinfo", "--all", "--noheader", "-N", "-o", "\x1f".join(COLUMNS.values())))))
    try:
        richer: Iterable[ConfigurationLine] = lines_of(_said(("sinfo", "--all", "--json")), "sinfo")
    except MachineError:
        richer = ()  # before 21.08, or without a serializer plugin
    return merged(rows, richer)


def columns(text: str) -> Iterator[ConfigurationLine]:
    """sinfo's columns as lines of a slurm.conf; a row is a node in a partition."""
    for number, row in enumerate(text.splitlines(), 1):
        values = dict(zip(COLUMNS, (value.strip() for value in row.split("\x1f")), strict=False))
        if len(values) != len(COLUMNS):
            continue
        values = {key: "" if value in ("(null)", "N/A", "n/a") else value for key, value in values.items()}
        node = {key: values[key] for key in _OF_NODES if values[key] and not values[key].endswith("+")}
        yield ConfigurationLine("sinfo", number, node)
        name = values["partitionname"]
        least, _, most = values["sizes"].partition("-")
        partition = {
            "partitionname": name.rstrip("*"),
            "default": "YES" if name.endswith("*") else "NO",
            "nodes": values["nodename"],
            **{
                key: values[key] for key in ("maxtime", "defaulttime", "oversubscribe", "maxcpuspernode") if values[key]
            },
            **{key: value for key, value in (("minnodes", least), ("maxnodes", most or least)) if value.isdecimal()},
        }
        yield ConfigurationLine("sinfo", number, partition)


def merged(rows: Iterable[ConfigurationLine], richer: Iterable[ConfigurationLine]) -> tuple[ConfigurationLine, ...]:
    """One line per node and per partition: from the columns, with the missing fields from JSON."""
    globals_: list[ConfigurationLine] = []
    found: dict[tuple[str, str], ConfigurationLine] = {}
    for line in chain(rows, richer):
        if line.kind not in ("nodename", "partitionname"):
            globals_.append(line)
            continue
        names = line.values[line.kind].split(",") if line.kind == "nodename" else [line.values[line.kind]]
        for name in names:
            key = (line.kind, name)
            own = {**line.values, line.kind: name}
            before = found.get(key)
            if before is None:
                found[key] = ConfigurationLine(line.path, line.number, own)
                continue
            values = {**own, **before.values}
            if line.kind == "partitionname":
                values["nodes"] = ",".join(dict.fromkeys(filter(None, (before.values.get("nodes"), own.get("nodes")))))
            found[key] = ConfigurationLine(before.path, before.number, values)
    return (*globals_, *found.values())
