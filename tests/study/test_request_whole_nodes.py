"""Nodes that a partition gives whole, and memory that a cluster does not count."""

from __future__ import annotations

import pytest

from preflight.dialects.reading import Request
from preflight.machines.slurm_conf import read_slurm_conf
from preflight.machines.slurm_import import by_type
from preflight.study.request import Allocation, resolve

NODES = """\
NodeName=a[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:4
PartitionName=shared Nodes=ALL Default=YES DefMemPerCPU=4000
PartitionName=whole Nodes=ALL DefMemPerCPU=4000 {}
"""


def allocation(conf: str, request: Request) -> Allocation:
    return resolve(request, by_type(read_slurm_conf(conf)))


@pytest.mark.parametrize("word", ["OverSubscribe=EXCLUSIVE", "Exclusive=NODE", "Exclusive=TOPO", "Shared=EXCLUSIVE"])
def test_a_partition_of_whole_nodes_gives_all_of_a_node(word: str) -> None:
    conf = NODES.format(word)
    found = allocation(conf, Request(partition="whole", cpus_per_task=8))
    assert (found.cpus_per_node, found.gpus_per_node, found.memory_limit) == (64, 4, 64 * 4000 * 2**20)
    found = allocation(conf, Request(partition="shared", cpus_per_task=8))
    assert (found.cpus_per_node, found.gpus_per_node, found.memory_limit) == (8, 0, 8 * 4000 * 2**20)


@pytest.mark.parametrize(
    ("select", "counted"),
    [
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n", False),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n", True),
        ("SelectType=select/linear\n", False),
        ("SelectType=select/linear\nSelectTypeParameters=CR_Memory\n", True),
    ],
)
def test_memory_that_is_not_counted_limits_nothing(select: str, counted: bool) -> None:
    found = allocation(select + NODES.format(""), Request(memory=8 * 2**30))
    assert found.memory_limit == (8 * 2**30 if counted else 512000 * 2**20)
    assert ("not counted" in found.memory_said) is not counted
