from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from preflight.machines.clusters import MachineError, dump_machine, find_machine, load_machine, parse_machine
from preflight.vocabulary.machine import Cgroup, Cluster, Node, Partition
from preflight.vocabulary.notation import format_size, parse_size

TEXT = """\
slurm_version = "22.05"

[node.l40s]
memory = "513GB"
cpus = 128
gpu = "L40S"
gpus = 4

[node.cpu]
memory = 128000  # MiB
count = 12

[partition.l40s_public]
nodes = ["l40s"]
default = true
max_memory_per_node = "500GB"
"""


def test_a_cluster_file_is_read_with_slurms_units() -> None:
    cluster = parse_machine(TEXT, "cluster.toml", "cluster")
    gpu, cpu = cluster.nodes
    assert gpu == Node("l40s", memory=513 * 2**30, cpus=128, gpus=4, gpu="L40S")
    assert cpu.memory == 128000 * 2**20
    assert cpu.count == 12
    assert cluster.partitions == (Partition("l40s_public", ("l40s",), default=True, max_memory_per_node=500 * 2**30),)
    assert cluster.slurm_version == (22, 5)


def test_a_gpu_without_a_count_is_one() -> None:
    assert parse_machine('[node.desk]\ngpu = "RTX 3090"\n', "m.toml", "desk").nodes[0].gpus == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[node.a]\ncpus = 4\nmemory = "lots"\n', "m.toml:3: node.a.memory: 'lots' is not a size"),
        ('[node.a]\nmemry = "5GB"\n', "m.toml:2: node.a.memry: no such key"),
        ('[node.a]\n\n[partition.p]\nnodes = ["b"]\n', "m.toml:4: partition.p.nodes: there is no [node.b] ("),
        ("[node", "m.toml: not valid TOML"),
        ("[node.a]\ncpus = 0\n", "m.toml:2: node.a.cpus: "),
        ('name = "c"\n\n[[node]]\nname = "big"\n', "m.toml:3: write [node.big] instead of [[node]]"),
        ("[node.a]\n[[partition]]\nnodes = []\n", "m.toml:2: write [partition.NAME] instead of [[partition]]"),
        ("format = 7\n[node.a]\ncpus = 1\n", "m.toml:1: this version reads format 1, and the file has format 7"),
        ('name = "x"\n', "node: Field required"),
    ],
)
def test_a_wrong_file_is_one_clear_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        parse_machine(text, "m.toml", "m")
    assert message in str(caught.value)


def test_a_machine_is_a_file_or_a_known_name(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(TEXT)
    assert find_machine("cluster.toml", tmp_path).name == "cluster"
    with pytest.raises(MachineError, match="no machine 'nowhere'"):
        find_machine("nowhere", tmp_path)
    with pytest.raises(MachineError, match="cannot be read"):
        load_machine(tmp_path)


sizes = st.integers(1, 2**24).map(lambda mib: mib * 2**20)
nodes = st.builds(
    Node,
    name=st.text(min_size=1, max_size=8),
    memory=st.none() | sizes,
    cpus=st.none() | st.integers(1, 512),
    gpus=st.integers(1, 16),
    gpu=st.none() | st.sampled_from(["L40S", 'a "quoted" one']),
    swap=st.none() | sizes,
    local_disk=st.none() | st.just(0) | sizes,
    features=st.lists(st.sampled_from(["ib", "a&b"]), max_size=2).map(tuple),
)


@given(st.lists(nodes, min_size=1, max_size=3, unique_by=lambda node: node.name))
def test_what_is_written_reads_back_the_same(given_nodes: list[Node]) -> None:
    names = tuple(node.name for node in given_nodes)
    cluster = Cluster("c", tuple(given_nodes), (Partition("p", names, default_memory_per_cpu=2**30),), path="m.toml")
    cluster = replace(cluster, licenses={"matlab": 3, "a b": 0}, cgroup=Cgroup(True, None, 10.0, 110.0, 90.5))
    assert parse_machine(dump_machine(cluster), "m.toml", "other") == cluster


@pytest.mark.parametrize(
    ("text", "size"),
    [("513GB", 513 * 2**30), ("1.5 TiB", 3 * 2**39), ("256000", 256000 * 2**20), (64, 64 * 2**20), ("8g", 2**33)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "12 parsecs", "1e3", True])
def test_what_is_no_size(text: str | bool) -> None:
    assert parse_size(text) is None


def test_the_machine_file_of_the_guide_reads() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "slurm.md").read_text(encoding="utf-8")
    block = "\n".join(line[4:] for line in guide.splitlines() if line.startswith("    "))
    cluster = parse_machine(block, "guide", "guide")
    assert cluster.nodes[0].gpu == "L40S"
    assert cluster.nodes[0].shm == 64 * 2**20
    assert cluster.partitions[0].default_memory_per_cpu == 4 * 2**30
