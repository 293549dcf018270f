"""Nodes that a partition gives whole, and memory that a cluster does not count."""

from __future__ import annotations

import pytest
from folders import Write
from msgspec.structs import replace

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.machines.clusters import dump_machine
from preflight.slurm.allocation import Allocation, resolve
from preflight.slurm.import_.conf import read_slurm_conf
from preflight.slurm.import_.importer import by_type
from preflight.vocabulary.machine import Cgroup
from preflight.vocabulary.reading import Request
from preflight.vocabulary.settings import Settings

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


THREADS = """\
SelectType=select/cons_tres
SelectTypeParameters={}
NodeName=a1 Sockets=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000 Gres=gpu:l40s:1
PartitionName=p Nodes=ALL Default=YES
"""
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1 -c1 --mem-per-cpu=4G\npython train.py\n"
TRAIN = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(per_device_train_batch_size=1)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("parameters", "cgroup", "gib"),
    [
        ("CR_CPU_Memory", Cgroup(), 4.0),
        ("CR_Core_Memory", Cgroup(), 8.0),  # a core is given with both its threads
        ("CR_Core_Memory", Cgroup(constrain_memory=True, allowed_memory_percent=150.0), 12.0),
        ("CR_Core_Memory", Cgroup(constrain_memory=True, max_memory_percent=1.0), 5.0),
    ],
)
def test_the_limit_is_what_the_cluster_gives(parameters: str, cgroup: Cgroup, gib: float, project: Write) -> None:
    cluster = replace(by_type(read_slurm_conf(THREADS.format(parameters))), cgroup=cgroup)
    root = project({"job.sh": SCRIPT, "train.py": TRAIN, "cluster.toml": dump_machine(cluster)})
    settings = Settings(set={"train.seq_len": 64}, machine="cluster.toml")
    files, asked = engine.setup(Batch(root, settings, None, ("job.sh",), ()), engine.CheckOptions(), root)
    [result] = engine.check(files, asked).studies
    limit = result.space.worst.job.machine.memory_limit
    assert limit == pytest.approx(gib * 2**30)


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
    assert ("does not limit" in found.memory_said) is not counted
