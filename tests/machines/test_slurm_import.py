from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machines.clusters import MachineError, dump_machine, parse_machine
from preflight.machines.slurm_conf import expand, read_slurm_conf
from preflight.machines.slurm_import import by_type, import_slurm

CONF = """\
ClusterName=pf  # a comment
EnforcePartLimits=ALL
DefMemPerCPU=4096
NodeName=DEFAULT CPUs=64 RealMemory=256000
NodeName=gpu[01-03] Gres=gpu:a100:4(S:0-1) Features=ib,big
NodeName=old \\
    CPUs=16 RealMemory=64000 Gres=gpu:2
PartitionName=gpu Nodes=gpu[01-03] Default=YES MaxTime=1-00:00:00 MaxMemPerNode=200000
PartitionName=all Nodes=ALL MaxTime=INFINITE
"""

SCONTROL = """\
ClusterName             = pf
SLURM_VERSION           = 22.05.8
NodeName=gpu1 Arch=x86_64 CPUTot=64 AvailableFeatures=(null) Gres=gpu:l40s:4 RealMemory=513000 State=IDLE
NodeName=gpu2 Arch=x86_64 CPUTot=64 AvailableFeatures=(null) Gres=gpu:l40s:4 RealMemory=513000 State=MIXED
NodeName=cpu1 Arch=x86_64 CPUTot=32 AvailableFeatures=big Gres=(null) RealMemory=128000 State=IDLE
PartitionName=l40s Default=YES MaxTime=UNLIMITED Nodes=gpu[1-2] DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
"""


def test_slurm_conf() -> None:
    cluster = read_slurm_conf(CONF)
    gpu, old = cluster.nodes
    assert (gpu.count, gpu.cpus, gpu.memory, gpu.gpus, gpu.gpu_type) == (3, 64, 256000 * 2**20, 4, "a100")
    assert gpu.features == ("ib", "big")
    assert (old.count, old.cpus, old.gpus, old.gpu_type) == (1, 16, 2, None)
    partition, everything = cluster.partitions
    assert (partition.default, partition.max_minutes, partition.nodes) == (True, 1440, (gpu.name,))
    assert partition.max_memory_per_node == 200000 * 2**20
    assert (everything.max_minutes, everything.nodes) == (None, (gpu.name, old.name))
    assert cluster.enforce_part_limits == "ALL"
    assert cluster.defaults == {"memory_per_cpu": 4096 * 2**20}


def test_equal_nodes_are_one_type_and_the_file_reads_back() -> None:
    cluster = by_type(read_slurm_conf(SCONTROL, "scontrol"))
    assert [(node.name, node.count, node.gpu) for node in cluster.nodes] == [("gpu1", 2, "L40S"), ("cpu1", 1, None)]
    assert cluster.partitions[0].nodes == ("gpu1",)
    assert cluster.partitions[0].max_memory_per_node is None
    assert cluster.slurm_version == (22, 5)
    again = parse_machine(dump_machine(cluster), "scontrol", "x")
    assert again == cluster


def test_host_lists() -> None:
    assert expand("gpu[1-3,07],cpu1") == ["gpu1", "gpu2", "gpu3", "gpu07", "cpu1"]
    assert expand("n[08-10]-ib") == ["n08-ib", "n09-ib", "n10-ib"]
    assert len(expand("x[0-999999999]")) <= 100_001


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ClusterName=x\n", "no NodeName line"),
        ("NodeName=a CPUs=many\n", "c.conf:1: cpus=many is no number"),
        ("NodeName=a\nPartitionName=p Nodes=b\n", "c.conf:2: partition p"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        read_slurm_conf(text, "c.conf")


def test_without_scontrol_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="--conf"):
        import_slurm()
    with pytest.raises(MachineError, match="cannot be read"):
        import_slurm(tmp_path / "slurm.conf")
