from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.machines.clusters import MachineError, dump_machine, parse_machine
from preflight.machines.hostlist import expand, fold
from preflight.slurm.allocation import resolve
from preflight.slurm.import_.conf import read_slurm_conf
from preflight.slurm.import_.importer import by_type, import_slurm
from preflight.vocabulary.machine import Cgroup, usable_memory
from preflight.vocabulary.reading import Request

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
    cluster = by_type(read_slurm_conf(CONF))
    gpu, old = cluster.nodes
    assert (gpu.name, gpu.hosts, gpu.count) == ("gpu", "gpu[01-03]", 3)
    assert (gpu.cpus, gpu.memory, gpu.gpus, gpu.gpu_type) == (64, 256000 * 2**20, 4, "a100")
    assert gpu.features == ("ib", "big")
    assert (old.count, old.cpus, old.gpus, old.gpu_type) == (1, 16, 2, None)
    partition, everything = cluster.partitions
    assert (partition.default, partition.max_minutes, partition.nodes) == (True, 1440, (gpu.name,))
    assert partition.max_memory_per_node == 200000 * 2**20
    assert (everything.max_minutes, everything.nodes) == (None, (gpu.name, old.name))
    assert cluster.enforce_part_limits == "ALL"
    assert cluster.defaults == {"memory_per_cpu": 4096 * 2**20}
    assert cluster.gres_types == ("gpu",)


def test_equal_nodes_are_one_type_and_the_file_reads_back() -> None:
    cluster = by_type(read_slurm_conf(SCONTROL, "scontrol"))
    assert [(node.name, node.count, node.gpu) for node in cluster.nodes] == [("cpu", 1, None), ("gpu", 2, "L40S")]
    assert cluster.partitions[0].nodes == ("gpu",)
    assert cluster.partitions[0].max_memory_per_node is None
    assert cluster.slurm_version == (22, 5)
    again = parse_machine(dump_machine(cluster), "scontrol", "x")
    assert again == cluster


SOCKETS = """\
NodeName=DEFAULT Sockets=2 CoresPerSocket=16 ThreadsPerCore=2
NodeName=a[1-2] RealMemory=500000 MemSpecLimit=4000 Gres=gpu:a100:2,gpu:v100:2,nvme:1
NodeName=b1 CPUs=32 RealMemory=500000
NodeSet=fast Feature=none Nodes=a[1-2]
PartitionName=DEFAULT MaxTime=60 DefMemPerGPU=32000
PartitionName=p Nodes=fast,b1 MinNodes=2 MaxNodes=3 MaxCPUsPerNode=8 OverSubscribe=EXCLUSIVE DefaultTime=30
PartitionName=q Nodes=a1 JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=16000 MaxTime=UNLIMITED
"""


def test_what_a_node_and_a_partition_can_say() -> None:
    cluster = by_type(read_slurm_conf(SOCKETS))
    by_name = {node.name: node for node in cluster.nodes}
    assert {node.hosts for node in cluster.nodes} == {"a1", "a2", "b1"}  # q has a1 alone, so it is a type of its own
    a1 = by_name["a"]
    assert (a1.cpus, a1.sockets, a1.cores_per_socket, a1.threads_per_core) == (64, 2, 16, 2)
    assert a1.gres == ("gpu:a100:2", "gpu:v100:2", "nvme:1")
    assert a1.memory_reserved == 4000 * 2**20
    assert by_name["b"].cpus == 32  # SLURM counts cores there, not threads
    p, q = cluster.partitions
    assert (p.min_nodes, p.max_nodes, p.max_cpus_per_node, p.exclusive, p.default_minutes) == (2, 3, 8, True, 30)
    assert (p.max_minutes, p.default_memory_per_gpu) == (60, 32000 * 2**20)
    assert (q.max_minutes, q.default_cpus_per_gpu, q.default_memory_per_gpu) == (None, 4, 32000 * 2**20)
    assert parse_machine(dump_machine(cluster), cluster.path or "", "x") == cluster


def test_files_beside_slurm_conf(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nGresTypes=gpu\nInclude nodes.conf\nTaskPlugin=task/cgroup\n")
    (tmp_path / "nodes.conf").write_text("NodeName=g[1-2] CPUs=8 RealMemory=1000 Gres=gpu:2\nInclude parts.conf\n")
    (tmp_path / "parts.conf").write_text("PartitionName=p Nodes=ALL\n")
    (tmp_path / "gres.conf").write_text("AutoDetect=off\nNodeName=g[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-1]\n")
    (tmp_path / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedSwapSpace=10\n")
    cluster = import_slurm(tmp_path / "slurm.conf")
    assert [(node.gpu_type, node.gpu) for node in cluster.nodes] == [("h100", "h100")]
    assert cluster.cgroup == Cgroup(True, True, 10.0)
    assert cluster.partitions[0].nodes == ("g",)
    assert parse_machine(dump_machine(cluster), cluster.path or "", "x") == cluster
    (tmp_path / "parts.conf").unlink()
    with pytest.raises(MachineError, match=r"nodes.conf:2: .*parts.conf: cannot be read"):
        import_slurm(tmp_path / "slurm.conf")


def test_host_lists() -> None:
    assert expand("gpu[1-3,07],cpu1") == ["gpu1", "gpu2", "gpu3", "gpu07", "cpu1"]
    assert expand("n[08-10]-ib") == ["n08-ib", "n09-ib", "n10-ib"]
    assert len(expand("x[0-999999999]")) <= 100_001
    assert expand("r[1-2]n[1-2]") == ["r1n1", "r2n1", "r1n2", "r2n2"] or len(set(expand("r[1-2]n[1-2]"))) == 4
    assert fold(["gpu2", "gpu1", "gpu03", "login", "gpu3"]) == "gpu[1-3],gpu03,login"


@given(st.lists(st.from_regex(r"[a-c]-?(0?[0-9]{1,3})?", fullmatch=True), unique=True, min_size=1, max_size=12))
def test_a_folded_list_has_the_same_names(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ClusterName=x\n", "no NodeName line"),
        ("NodeName=a CPUs=many\n", "c.conf:1: cpus=many is not a number"),
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


KINDS = """\
SelectType=select/cons_res
SelectType=select/cons_tres
Licenses=matlab:20,ansys,abaqus@server:5
JobDefaults=DefCpuPerGPU=6,DefMemPerGPU=30000
MaxMemPerNode=UNLIMITED
NodeName=DEFAULT CPUs=8 RealMemory=64000
NodeName=rack[1-2]n[01-02] Gres=gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:1
NodeName=s[1-2],t9 Gres=gpu:rtx_3090:4(S:0,1),shard:rtx_3090:64(S:0-1) TmpDisk=1000
NodeName=DEFAULT RealMemory=128000
NodeName=u1 Gres=gpu:4 Feature=a,b
NodeSet=both Feature=b Nodes=t9
PartitionName=DEFAULT MaxTime=60 ExclusiveUser=YES
PartitionName=hidden Nodes=rack1n[01-02],both Hidden=YES
PartitionName=DEFAULT MaxTime=120
PartitionName=open Nodes=s[1-2] OverSubscribe=FORCE:2
"""


def test_resources_sets_and_defaults_of_every_kind() -> None:
    found = read_slurm_conf(KINDS, gres="AutoDetect=nvml\n")
    nodes = {node.name: node for node in found.nodes}
    assert list(nodes) == ["rack1n01", "rack1n02", "rack2n01", "rack2n02", "s1", "s2", "t9", "u1"]
    sliced, shared, plain = nodes["rack2n01"], nodes["s1"], nodes["u1"]
    assert (sliced.gpus, sliced.gres) == (8, ("gpu:a100_1g.5gb:7", "gpu:a100_3g.20gb:1"))
    assert (shared.gpus, shared.gpu_type, shared.gres) == (4, "rtx_3090", ("gpu:rtx_3090:4", "shard:rtx_3090:64"))
    assert (shared.memory, shared.local_disk) == (64000 * 2**20, 1000 * 2**20)
    assert (plain.gpus, plain.gpu_type, plain.memory, plain.features) == (4, None, 128000 * 2**20, ("a", "b"))
    hidden, opened = found.partitions
    assert (hidden.nodes, hidden.max_minutes) == (("rack1n01", "rack1n02", "t9", "u1"), 60)
    assert (opened.nodes, opened.max_minutes, opened.exclusive) == (("s1", "s2"), 120, False)
    assert found.select_type == "cons_tres"  # of two the last counts
    assert found.licenses == {"matlab": 20, "ansys": 1}  # a server's are the accounting database's
    assert found.defaults == {"cpus_per_gpu": 6, "memory_per_gpu": 30000 * 2**20}
    assert found.limits == {}
    again = by_type(found)
    assert parse_machine(dump_machine(again), "slurm.conf", "x") == again


def test_what_jobs_are_held_to() -> None:
    text = "ConstrainRAMSpace=yes\nAllowedRAMSpace=110\nMaxRAMPercent=90.5\nAllowedSwapSpace=10\n"
    cgroup = read_slurm_conf(CONF, cgroup=text).cgroup
    assert cgroup == Cgroup(True, None, 10.0, 110.0, 90.5)
    assert usable_memory(100, None, cgroup) == 110
    assert usable_memory(100, 100, cgroup) == 90
    assert usable_memory(100, 100, Cgroup(False, allowed_memory_percent=50.0)) == 100
    assert read_slurm_conf(CONF, cgroup="AllowedRAMSpace=100\nMaxRAMPercent=100%\n").cgroup == Cgroup()


@pytest.mark.parametrize(
    ("gres", "feature", "gpu", "doubtful"),
    [
        ("gpu:l40s:4", "", "L40S", False),
        ("gpu:a100:4", "", "a100", True),  # of 40 or of 80 GB: the file says no more than the cluster
        ("gpu:a100:4", " Feature=ib,a100_80gb", "A100 80GB", False),
        ("gpu:h100:4", "", "h100", True),
        ("gpu:tesla9000:4", "", None, False),
        ("gpu:a100_3g.20gb:2", "", "A100 MIG 3g.20gb", False),
    ],
)
def test_a_type_that_can_be_several_gpus_stays_open(gres: str, feature: str, gpu: str | None, doubtful: bool) -> None:
    conf = f"NodeName=n1 CPUs=8 RealMemory=64000 Gres={gres}{feature}\nPartitionName=p Nodes=n1 Default=YES\n"
    cluster = by_type(read_slurm_conf(conf))
    assert cluster.nodes[0].gpu == gpu
    found = resolve(Request(gpus_per_node=1), cluster)
    assert bool(found.doubts) is doubtful
