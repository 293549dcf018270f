"""What a machine file leaves out refuses nothing, and no request crashes the arithmetic. Verdicts: tests/slurm."""

from __future__ import annotations

import time

import pytest
from slurm.compare import asked, ours
from slurm.generated import request

from preflight.machines.cluster_file import parse_machine
from preflight.slurm.controller.verdict import judge
from preflight.vocabulary.machine import Cluster, Node, Partition
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown

GIB = 2**30
BARE = parse_machine("[node.any]\ngpus = 4\n", "m.toml", "m")
DESK = parse_machine('[node.desk]\nmemory = "64GB"\ncpus = 16\ngpu = "RTX 4090"\n', "m.toml", "m")


@pytest.mark.parametrize(
    "request_",
    [
        Request(memory=4096 * GIB),
        Request(tasks_per_node=4000, cpus_per_task=8),
        Request(nodes=500, gpus_per_node=4),
        Request(gpu_type="h100", gpus_per_node=1),
        Request(tasks=2000, gpus_per_task=1),
        Request(exclusive=True, memory_per_cpu=GIB),
    ],
)
def test_what_nobody_said_refuses_nothing(request_: Request) -> None:
    assert judge(request_, BARE).answer is None


def test_a_workstation_has_no_partitions() -> None:
    assert judge(Request(memory=64 * GIB, gpus=1), DESK).answer is None
    assert judge(Request(memory=65 * GIB), DESK).answer is not None
    assert judge(Request(partition="whatever", gpus=1), DESK).answer is None


@pytest.mark.parametrize(
    "name", ["nodes", "tasks", "tasks_per_node", "cpus_per_task", "memory", "gpus_per_node", "partition", "constraint"]
)
def test_an_unknown_value_refuses_nothing(name: str) -> None:
    given = {"memory": GIB, "gpus_per_node": 1, "partition": "gpu", name: Unknown("it is set when the job runs")}
    node = Node("a", memory=2 * GIB, cpus=4, gpus=2, gpu_type="a100", count=2)
    cluster = Cluster(
        "c", (node, Node("b", cpus=4, count=2)), (Partition("cpu", ("b",), default=True), Partition("gpu", ("a",)))
    )
    assert judge(Request(**given), cluster).answer is None  # type: ignore[arg-type]


def test_nothing_crashes() -> None:
    for seed in range(150):
        for cluster in (BARE, DESK):
            ours(request(seed, "mixed"), cluster)


def test_large_clusters_are_judged_at_once() -> None:
    nodes = tuple(Node(f"n{kind}", memory=256 * GIB, cpus=64 + kind, gpus=4, count=1000) for kind in range(5))
    cluster = Cluster("c", nodes, (Partition("p", tuple(node.name for node in nodes), default=True),))
    made, _ = asked(["-N", "4000", "--gpus-per-node=4", "--ntasks-per-node=4", "--mem-per-gpu=60G"])
    judge(made, cluster)
    start = time.process_time()
    assert judge(made, cluster).answer is None
    assert judge(asked(["-N", "5001"])[0], cluster).answer is not None
    assert judge(asked(["--gpus=20001"])[0], cluster).answer is not None
    assert time.process_time() - start < 5
