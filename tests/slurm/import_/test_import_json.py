"""What sinfo and scontrol print as JSON, by version, and what sinfo prints as columns: the same cluster each time.

The shapes follow the parsers of Slurm's data_parser plugins (PARTITION_INFO, NODE, SINFO_DATA in parsers.c).
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from preflight.machines.clusters import MachineError
from preflight.slurm.import_.ask import COLUMNS
from preflight.slurm.import_.importer import import_slurm
from preflight.vocabulary.machine import Cluster

MIB = 2**20
Plain = dict[str, object]


def number(value: int | None, infinite: bool = False) -> Plain:
    return {"set": value is not None or infinite, "infinite": infinite, "number": value or 0}


def meta(release: str, style: str = "slurm") -> Plain:
    major, minor, micro = release.split(".")
    return {"plugin": {}, style: {"version": {"major": major, "minor": minor, "micro": micro}, "release": release}}


def node(name: str, gres: str, features: object, **more: object) -> Plain:
    return {
        "name": name, "hostname": name, "boards": 1, "sockets": 2, "cores": 16, "threads": 2, "cpus": 64,
        "real_memory": 515000, "temporary_disk": 900, "gres": gres, "gres_used": "gpu:a100:0", "features": features,
        "active_features": features, "partitions": ["gpu"], "state": ["IDLE"], "operating_system": "Linux #1",
        **more,
    }  # fmt: skip


def partition(**changed: object) -> Plain:
    found: Plain = {
        "name": "gpu",
        "nodes": {"configured": "a[1-2]", "allowed_allocation": "", "total": 2},
        "defaults": {"memory_per_cpu": 4000 | 2**63, "time": number(60), "job": "DefCpuPerGPU=8,DefMemPerGPU=60000"},
        "maximums": {
            "cpus_per_node": number(None, True), "memory_per_cpu": 0, "nodes": number(8), "shares": 1,
            "time": number(None, True),
        },
        "minimums": {"nodes": 1},
    }  # fmt: skip
    return found | changed


PER_UNIT = {
    "memory_per_cpu": 4000 | 2**63, "partition_memory_per_cpu": number(4000), "partition_memory_per_node": number(None),
    "time": number(60), "job": "DefCpuPerGPU=8,DefMemPerGPU=60000",
}  # fmt: skip


def group(**changed: object) -> Plain:
    both = {"minimum": 0, "maximum": 0}
    found: Plain = {
        "nodes": {"nodes": ["a1", "a2"], "hostnames": ["a1", "a2"], "total": 2},
        "cpus": both | {"minimum": 64, "maximum": 64, "total": 128}, "sockets": {"minimum": 2, "maximum": 2},
        "cores": {"minimum": 16, "maximum": 16}, "threads": {"minimum": 2, "maximum": 2},
        "memory": {"minimum": 515000, "maximum": 515000, "allocated": 0}, "disk": {"minimum": 900, "maximum": 900},
        "features": {"total": "ib,new", "active": "ib,new"}, "gres": {"total": "gpu:a100:4(S:0-1)", "used": ""},
        "partition": partition(),
    }  # fmt: skip
    return found | changed


GRES = "gpu:a100:4(S:0-1)"
SINFO_23_02 = {"meta": meta("23.02.7", "Slurm"), "sinfo": [group()], "errors": []}
SINFO_24_05 = {"meta": meta("24.05.4"), "sinfo": [group(partition=partition(defaults=PER_UNIT))], "errors": []}
SINFO_26_05 = {
    "meta": meta("26.05.1"),
    "sinfo": [
        group(
            resource_spec={"cpus": "", "memory": 0},
            partition=partition(
                defaults={one: value for one, value in PER_UNIT.items() if one != "memory_per_cpu"},
                flags=["DEFAULT"],
                partition={"oversubscribe": "NO", "exclusive": "NO", "state": ["UP"]},
            ),
        )
    ],
}
NODES = {"meta": meta("23.11.10"), "nodes": [node("a1", GRES, ["ib", "new"]), node("a2", GRES, ["ib", "new"])]}
SCONTROL_23_11 = json.dumps(NODES) + "\n" + json.dumps({"partitions": [partition(defaults=PER_UNIT)]})


def imported(text: str, folder: Path) -> Cluster:
    path = folder / "cluster.json"
    path.write_text(text)
    return import_slurm(path)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (json.dumps(SINFO_23_02), (23, 2)),
        (json.dumps(SINFO_24_05), (24, 5)),
        (json.dumps(SINFO_26_05), (26, 5)),
        (SCONTROL_23_11, (23, 11)),
    ],
    ids=["sinfo 23.02", "sinfo 24.05", "sinfo 26.05", "scontrol 23.11"],
)
def test_every_version_says_the_same(text: str, version: tuple[int, int], tmp_path: Path) -> None:
    cluster = imported(text, tmp_path)
    assert cluster.slurm_version == version
    [one] = cluster.nodes
    assert (one.hosts, one.cpus, one.sockets, one.cores_per_socket, one.threads_per_core) == ("a[1-2]", 64, 2, 16, 2)
    assert (one.memory, one.local_disk, one.features) == (515000 * MIB, 900 * MIB, ("ib", "new"))
    assert (one.gpus, one.gpu_type, one.gres) == (4, "a100", ())
    [part] = cluster.partitions
    assert (part.default, part.exclusive, part.max_minutes, part.default_minutes) == (True, False, None, 60)
    assert (part.default_memory_per_cpu, part.default_memory_per_node) == (4000 * MIB, None)
    assert (part.default_cpus_per_gpu, part.default_memory_per_gpu) == (8, 60000 * MIB)
    assert (part.min_nodes, part.max_nodes, part.max_cpus_per_node) == (1, 8, None)
    assert part.max_memory_per_cpu is part.max_memory_per_node is None
    assert cluster.max_array_size is None  # nobody said


def test_what_is_given_per_node_is_not_per_cpu(tmp_path: Path) -> None:
    defaults = {"memory_per_cpu": 32000, "time": number(None)}
    [part] = imported(json.dumps({"sinfo": [group(partition=partition(defaults=defaults))]}), tmp_path).partitions
    assert (part.default_memory_per_cpu, part.default_memory_per_node) == (None, 32000 * MIB)
    assert part.default_minutes is None


def test_whole_nodes(tmp_path: Path) -> None:
    for own in ({"partition": {"exclusive": "NODE"}}, {"maximums": {"shares": 0}}):
        [part] = imported(json.dumps({"sinfo": [group(partition=partition(**own))]}), tmp_path).partitions
        assert part.exclusive


def test_a_group_of_unequal_nodes_leaves_open_what_differs(tmp_path: Path) -> None:
    text = json.dumps({"sinfo": [group(memory={"minimum": 256000, "maximum": 515000})]})
    [one] = imported(text, tmp_path).nodes
    assert (one.memory, one.cpus) == (None, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sinfo": [', r"cluster.json:1: not valid JSON"),
        ('{"jobs": []}', "lists no nodes"),
        (json.dumps({"nodes": [node("a1", "", "")]}), "lists no partitions"),
        (
            json.dumps({"sinfo": [group(), group(partition=partition(name="cpu"))]}),
            "which of gpu, cpu is the default partition: give one file",
        ),
    ],
)
def test_json_that_does_not_suffice_says_what_does(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=message):
        imported(text, tmp_path)


ROWS = [
    ("a1", "gpu*", "64", "2", "16", "2", "515000", "900", GRES, "ib,new", "2-00:00:00", "1:00:00", "NO", "UNLIMITED",
     "1-8"),
    ("a1", "whole", "64", "2", "16", "2", "515000", "900", GRES, "ib,new", "infinite", "n/a", "EXCLUSIVE", "UNLIMITED",
     "2"),
    ("c1", "gpu*", "16", "16", "1", "1", "64000+", "0", "(null)", "(null)", "2-00:00:00", "1:00:00", "NO", "UNLIMITED",
     "1-8"),
]  # fmt: skip


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Programs of these names that print a text; `sinfo_json` is what sinfo prints for --json."""
    for name in ("scontrol", "sinfo"):
        path = folder / name
        path.write_text(f"#!/bin/sh\ncase \"$*\" in *--json*) f={name}_json;; *) f={name};; esac\n"
                        f'[ -f "{folder}/$f.txt" ] || {{ echo "{name}: not permitted" >&2; exit 1; }}\n'
                        f'cat "{folder}/$f.txt"\n')  # fmt: skip
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("json_too", [False, True])
def test_sinfo_answers_where_scontrol_does_not(json_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(len(row) == len(COLUMNS) for row in ROWS)
    more = {"sinfo_json": json.dumps(SINFO_24_05)} if json_too else {}
    commands(tmp_path, monkeypatch, sinfo="".join("\x1f".join(row) + "\n" for row in ROWS), **more)
    cluster = import_slurm()
    nodes = {one.hosts: (one.cpus, one.memory, one.gpus) for one in cluster.nodes}
    assert nodes["a1"] == (64, 515000 * MIB, 4)
    assert nodes["c1"] == (16, None, 0)
    parts = {one.name: one for one in cluster.partitions}
    assert (parts["gpu"].default, parts["whole"].default) == (True, False)
    assert (parts["gpu"].exclusive, parts["whole"].exclusive) == (False, True)
    assert (parts["gpu"].max_minutes, parts["whole"].max_minutes) == (2880, None)
    assert (parts["whole"].min_nodes, parts["whole"].max_nodes) == (2, 2)
    assert parts["gpu"].default_memory_per_cpu == (4000 * MIB if json_too else None)
    assert cluster.gres_types is None


def test_where_neither_answers_scontrols_error_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch)
    with pytest.raises(MachineError, match="scontrol show config -o failed: scontrol: not permitted"):
        import_slurm()
