"""What a request gets per node. Whole requests against a real controller:
tests/dialects/slurm/test_slurm_request.py."""

from __future__ import annotations

import pytest

from preflight.slurm.allocation import Allocation, resolve
from preflight.vocabulary.machine import Cluster, Node, Partition
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown

GIB = 2**30
SMALL = Node("small", memory=128 * GIB, cpus=32, gpus=2, gpu="RTX 3090", gpu_type="rtx", features=("old",))
LARGE = Node("large", memory=512 * GIB, cpus=128, gpus=8, gpu="A100 80GB", gpu_type="a100", features=("new", "ib"))
PLAIN = Node("plain", memory=64 * GIB, cpus=16)
CLUSTER = Cluster(
    "c",
    (SMALL, LARGE, PLAIN),
    (
        Partition("gpu", ("small", "large"), default=True, default_memory_per_cpu=2 * GIB),
        Partition("cpu", ("plain",), max_minutes=60, max_memory_per_node=32 * GIB),
    ),
)


@pytest.mark.parametrize(
    ("request_", "limit", "said"),
    [
        (Request(memory=64 * GIB), 64 * GIB, "--mem"),
        (Request(memory=0), 128 * GIB, "--mem=0: the whole node"),
        (Request(memory_per_cpu=GIB, cpus_per_task=4, tasks_per_node=2), 8 * GIB, "--mem-per-cpu x 8 CPUs"),
        (Request(memory_per_gpu=32 * GIB, gpus_per_node=2), 64 * GIB, "--mem-per-gpu x 2 GPUs"),
        (Request(memory_per_gpu=32 * GIB, gpus=8, nodes=2), 224 * GIB, "--mem-per-gpu x 7 GPUs"),
        (Request(memory_per_gpu=16 * GIB, gpus_per_task=1, tasks_per_node=4), 64 * GIB, "--mem-per-gpu x 4 GPUs"),
        (Request(cpus_per_task=8), 16 * GIB, "the default per cpu"),
        (Request(exclusive=True, memory_per_cpu=GIB), 32 * GIB, "--mem-per-cpu x 32 CPUs"),
        (Request(exclusive=True), 64 * GIB, "the default per cpu"),
        (Request(partition="cpu"), 64 * GIB, "no memory is requested, and the cluster has no default: the whole node"),
    ],
)
def test_memory_per_node(request_: Request, limit: int, said: str) -> None:
    found = resolve(request_, CLUSTER)
    assert found.impossible is None
    assert (found.memory_limit, found.memory_said) == (limit, said)


def test_without_a_cluster_the_default_is_unknown_and_the_rest_is_arithmetic() -> None:
    found = resolve(Request(nodes=2, tasks_per_node=4, cpus_per_task=8, gpus_per_node=4, gpu_type="a100"), None)
    assert (found.nodes, found.tasks_per_node, found.cpus_per_node, found.gpus_per_node) == (2, 4, 32, 4)
    assert found.memory_limit is None
    assert dict(found.unknown)["memory_limit"].startswith("no memory is requested")
    assert found.gpu is not None
    assert found.gpu.name == "A100 40GB"
    assert any("A100 80GB" in note for note in found.doubts)


@pytest.mark.parametrize(
    ("request_", "shape"),
    [
        (Request(tasks=16, nodes=4), (4, 13, 13, 0)),  # SLURM fills the first node and leaves one task to the others
        (Request(tasks=16, tasks_per_node=8), (2, 8, 8, 0)),
        (Request(tasks=6, nodes=4), (4, 3, 3, 0)),
        (Request(gpus=16), (2, 1, 1, 8)),
        (Request(gpus=16, gpus_per_task=1), (2, 8, 8, 8)),
        (Request(gpus_per_node=4, tasks_per_gpu=2), (1, 8, 8, 4)),
        (Request(gpus_per_node=4, cpus_per_gpu=12), (1, 1, 48, 4)),
        (Request(), (1, 1, 1, 0)),
    ],
)
def test_shape(request_: Request, shape: tuple[int, int, int, int]) -> None:
    found = resolve(request_, Cluster("c", (LARGE,)))
    assert (found.nodes, found.tasks_per_node, found.cpus_per_node, found.gpus_per_node) == shape


@pytest.mark.parametrize(
    ("request_", "node"),
    [
        (Request(), "small"),
        (Request(gpus_per_node=4), "large"),
        (Request(gpu_type="a100", gpus_per_node=1), "large"),
        (Request(constraint="new&ib"), "large"),
        (Request(constraint="new|old"), "small"),
        (Request(memory=256 * GIB), "large"),
        (Request(partition="cpu,gpu"), "plain"),
    ],
)
def test_the_node_that_can(request_: Request, node: str) -> None:
    found = resolve(request_, CLUSTER)
    assert found.node is not None
    assert found.node.name == node


@pytest.mark.parametrize(
    ("request_", "words", "setting"),
    [
        (Request(memory=600 * GIB), "614400 MiB per node; a node of type large has 524288 MiB", "request.memory"),
        (Request(memory_per_cpu=8 * GIB, cpus_per_task=128), "1048576 MiB", "request.memory_per_cpu"),
        (
            Request(gpus_per_node=9),
            "9 GPUs per node are requested; a node of type large has 8",
            "request.gpus_per_node",
        ),
        (Request(tasks_per_node=4, cpus_per_task=64, memory=GIB), "256 CPUs", "request.cpus_per_task"),
        (Request(partition="nope"), "no partition nope", "request.partition"),
        (Request(constraint="h100"), "no node has the feature", "request.constraint"),
        (Request(gpu_type="A100", gpus_per_node=1), "type A100", "request.gpu_type"),
        (Request(memory_per_gpu=GIB), "no GPU is requested", "request.memory_per_gpu"),
        (Request(gpus_per_task=1), "needs --ntasks", "request.gpus_per_task"),
        (Request(gpus_per_node=1, cpus_per_gpu=1, cpus_per_task=1), "cannot be used together", "request.cpus_per_gpu"),
    ],
)
def test_what_no_node_can_give(request_: Request, words: str, setting: str) -> None:
    found = resolve(request_, CLUSTER)
    assert found.impossible is not None
    assert words in found.impossible
    assert found.settings == (setting,)


def test_limits_of_a_partition_are_warnings_unless_enforced() -> None:
    late = Request(partition="cpu", time_minutes=120, memory=GIB)
    found = resolve(late, CLUSTER)
    assert found.impossible is None
    assert "MaxTime of 60" in found.warnings[0]
    strict = Cluster("c", CLUSTER.nodes, CLUSTER.partitions, enforce_part_limits="ALL")
    assert resolve(late, strict).impossible == found.warnings[0]


def test_an_unknown_in_the_request_stays_unknown() -> None:
    found = resolve(Request(nodes=Unknown("2 to 4 nodes"), tasks=8, memory=GIB), CLUSTER)
    assert isinstance(found, Allocation)
    assert found.nodes is None
    assert found.tasks_per_node is None
    assert ("nodes", "2 to 4 nodes") in found.unknown
    assert found.memory_limit == GIB
