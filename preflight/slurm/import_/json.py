"""Converts the output of `sinfo --json` and `scontrol show nodes --json` to lines of a slurm.conf.

The shape depends on the version: 22.05 lists nodes (openapi/v0.0.38); since 23.02 (data_parser/v0.0.39 and later) sinfo
lists groups of equal nodes with their partition, a number may be {"set", "infinite", "number"}, and lists are arrays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from preflight.slurm.import_.lines import ConfigurationLine
from preflight.vocabulary.errors import MachineError

PER_CPU = 2**63
"""The bit of a size in v0.0.39 and before that says "per CPU" (MEM_PER_CPU, slurm.h)."""
NO_VALUES = (2**16 - 2, 2**32 - 2, 2**64 - 2)
INFINITE = (2**16 - 1, 2**32 - 1, 2**64 - 1)
"""NO_VAL and INFINITE of 16, 32 and 64 bits (slurm.h)."""

Plain = Mapping[str, object]


def lines_of(text: str, path: str) -> tuple[ConfigurationLine, ...]:
    """The lines of one JSON text or of several after each other. Raises MachineError."""
    found: list[ConfigurationLine] = []
    for document in _documents(text, path):
        found += _globals(document, path)
        for row in _rows(document, "nodes"):
            found.append(ConfigurationLine(path, 1, {"nodename": _text(row.get("name")), **_values(row, _NODE)}))
        for row in _rows(document, "partitions"):
            found.append(ConfigurationLine(path, 1, _partition(row)))
        for row in _rows(document, "sinfo"):
            found.append(ConfigurationLine(path, 1, _values(row, _GROUP)))
            found.append(ConfigurationLine(path, 1, _partition(_table(row, "partition"))))
    kinds = {line.kind for line in found}
    if "nodename" not in kinds:
        raise MachineError(
            f"{path}: this JSON lists no nodes: give the output of sinfo --json or scontrol show nodes --json"
        )
    return tuple(line for line in found if line.values.get(line.kind))


def _documents(text: str, path: str) -> Iterator[Plain]:
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        try:
            found, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise MachineError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
        if isinstance(found, dict):
            yield found
        while at < len(text) and text[at].isspace():
            at += 1


def _rows(document: Plain, name: str) -> list[Plain]:
    rows = document.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _table(row: Plain, *names: str) -> Plain:
    for name in names:
        inner = row.get(name)
        row = inner if isinstance(inner, dict) else {}
    return row


def _globals(document: Plain, path: str) -> Iterator[ConfigurationLine]:
    meta = _table(document, "meta")
    slurm = _table(meta, "slurm") or _table(meta, "Slurm")
    release, cluster = _text(slurm.get("release")), _text(slurm.get("cluster"))
    if release:
        yield ConfigurationLine(path, 1, {"slurm_version": release})
    if cluster:
        yield ConfigurationLine(path, 1, {"clustername": cluster})


# --- values -----------------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    """A text; a list as SLURM joins it."""
    if isinstance(value, list):
        return ",".join(_text(one) for one in value)
    text = "" if value is None or isinstance(value, dict) else str(value)
    return "" if text in ("(null)", "N/A") else text


def _number(value: object) -> str | None:
    """A number as slurm.conf writes it; None: not set, or several values."""
    if isinstance(value, dict) and "number" in value:
        if value.get("infinite"):
            return "UNLIMITED"
        return _number(value["number"]) if value.get("set", True) else None
    if isinstance(value, dict):
        least, most = _number(value.get("minimum")), _number(value.get("maximum"))
        return least if least == most else None
    if not isinstance(value, int) or isinstance(value, bool) or value in NO_VALUES or value < 0:
        return None
    return "UNLIMITED" if value in INFINITE else str(value)


def _kept(pairs: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in pairs.items() if value}


# --- nodes and partitions ---------------------------------------------------------------------------------------------


_NODE = {
    "cpus": "cpus", "sockets": "sockets", "corespersocket": "cores", "threadspercore": "threads",
    "realmemory": "real_memory", "memspeclimit": "specialized_memory", "tmpdisk": "temporary_disk",
    "features": "features", "gres": "gres",
}  # fmt: skip
"""Key of slurm.conf -> field of a node, as 22.05 and `scontrol show nodes --json` list it."""

_GROUP = {
    "nodename": "nodes.nodes", "cpus": "cpus", "sockets": "sockets", "corespersocket": "cores",
    "threadspercore": "threads", "realmemory": "memory", "memspeclimit": "resource_spec.memory", "tmpdisk": "disk",
    "features": "features.total", "gres": "gres.total",
}  # fmt: skip
"""Key of slurm.conf -> field of a group of equal nodes, as sinfo lists them since 23.02."""

_TEXTS = ("nodename", "features", "gres")


def _values(row: Plain, fields: Mapping[str, str]) -> dict[str, str]:
    """The values of a row, by the keys of slurm.conf."""
    found: dict[str, str | None] = {}
    for key, path in fields.items():
        *tables, name = path.split(".")
        value = _table(row, *tables).get(name)
        found[key] = _text(value) if key in _TEXTS else _number(value)
    return _kept(found)


def _partition(row: Plain) -> dict[str, str]:
    defaults, most, least = (_table(row, name) for name in ("defaults", "maximums", "minimums"))
    own = _table(row, "partition")
    flags = row.get("flags")
    shared = _text(own.get("oversubscribe")) or ("EXCLUSIVE" if _number(most.get("shares")) == "0" else None)
    return _kept(
        {
            "partitionname": _text(row.get("name")).rstrip("*"),
            "nodes": _text(_table(row, "nodes").get("configured")),
            "default": None if flags is None else "YES" if "DEFAULT" in _text(flags).upper().split(",") else "NO",
            "maxtime": _number(most.get("time")),
            "defaulttime": _number(defaults.get("time")),
            "maxnodes": _number(most.get("nodes")),
            "minnodes": _number(least.get("nodes")),
            "maxcpuspernode": _number(most.get("cpus_per_node")),
            "jobdefaults": _text(defaults.get("job")),
            "oversubscribe": shared,
            "exclusive": _text(own.get("exclusive")),
            **_memory("defmemper", defaults),
            **_memory("maxmemper", most),
        }
    )


def _memory(prefix: str, sizes: Plain) -> dict[str, str | None]:
    """MiB per CPU or per node: in two fields, else in one number with a bit that tells which."""
    found = {f"{prefix}{unit}": _number(sizes.get(f"partition_memory_per_{unit}")) for unit in ("cpu", "node")}
    raw = sizes.get("memory_per_cpu")
    if not any(found.values()) and isinstance(raw, int) and 0 < raw < NO_VALUES[2]:
        unit = "cpu" if raw & PER_CPU else "node"
        found[f"{prefix}{unit}"] = str(raw & ~PER_CPU)
    return found
