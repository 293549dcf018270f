"""Clusters to ask real controllers about: between them, every way of counting that slurm.conf has."""

from __future__ import annotations

EVEN = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
NodeName=gpu[1-4] CPUs=64 RealMemory=256000 Gres=gpu:a100:4 State=CLOUD
NodeName=cpu[1-2] CPUs=32 RealMemory=128000 State=CLOUD
PartitionName=gpu Nodes=gpu[1-4] Default=YES MaxTime=24:00:00
PartitionName=cpu Nodes=cpu[1-2] MaxTime=4:00:00
"""
"""The cluster of the recorded verdicts: equal nodes, no defaults, no limits that are enforced."""

MIXED = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu,nvme
EnforcePartLimits=ALL
DefMemPerCPU=2048
MaxArraySize=501
NodeName=DEFAULT State=CLOUD
NodeName=a[1-3] Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000 Gres=gpu:a100:4 Feature=new,ib Weight=10
NodeName=v[01-04] CPUs=40 RealMemory=192000 Gres=gpu:v100:2,nvme:1 Feature=old,ib Weight=5
NodeName=m1 Sockets=4 CoresPerSocket=8 RealMemory=1031000 Gres=gpu:a100:2,gpu:v100:2 Feature=new,big
NodeName=c[1-6] CPUs=16 RealMemory=64000 Feature=old
PartitionName=DEFAULT MaxTime=2-00:00:00
PartitionName=batch Nodes=c[1-6] Default=YES DefaultTime=01:00:00 MaxNodes=4
PartitionName=gpu Nodes=a[1-3],v[01-04],m1 DefMemPerGPU=32000 DefCpuPerGPU=4
PartitionName=big Nodes=m1,a[1-3] MaxMemPerNode=400000 MaxTime=12:00:00
PartitionName=debug Nodes=c1,v01 MaxTime=30 MaxMemPerCPU=4096 MaxCPUsPerNode=8
PartitionName=all Nodes=ALL MaxTime=UNLIMITED
"""
"""Several node types, threads, features, defaults and limits that are enforced."""

LINEAR = """\
SelectType=select/linear
SelectTypeParameters=CR_Memory
GresTypes=gpu,nvme
EnforcePartLimits=ANY
DefMemPerNode=8000
NodeName=DEFAULT State=CLOUD
NodeName=g[1-3] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=128000 Gres=gpu:a100:4,nvme:1 Feature=new
NodeName=c[1-4] CPUs=16 RealMemory=64000 Feature=old
PartitionName=DEFAULT MaxTime=1-00:00:00
PartitionName=gpu Nodes=g[1-3] Default=YES MaxMemPerNode=100000
PartitionName=cpu Nodes=c[1-4] MinNodes=2 MaxNodes=3 DefMemPerNode=32000
PartitionName=all Nodes=ALL MaxTime=60
"""
"""Whole nodes (select/linear), limits of which one partition's are enough, nodes given a default."""

RES = """\
SelectType=select/cons_res
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
NodeName=DEFAULT State=CLOUD
NodeName=g[1-3] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=128000 Gres=gpu:a100:4 Feature=new
NodeName=h1 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=256000 Gres=gpu:a100:2,gpu:v100:2 Feature=new,big
NodeName=c[1-4] CPUs=16 RealMemory=64000 Feature=old
PartitionName=DEFAULT MaxTime=1-00:00:00
PartitionName=gpu Nodes=g[1-3],h1 Default=YES DefMemPerCPU=2000
PartitionName=cpu Nodes=c[1-4] MaxCPUsPerNode=12
PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE MaxTime=60
"""
"""select/cons_res that counts threads, GPUs of two types on a node, a partition of whole nodes."""

THREADS = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu,shard
EnforcePartLimits=ANY
MaxMemPerNode=400000
NodeName=DEFAULT State=CLOUD
NodeName=a[1-4] Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000 Gres=gpu:a100:4 Feature=new,ib \\
  MemSpecLimit=5000
NodeName=b[1-2] Boards=1 SocketsPerBoard=2 CoresPerSocket=12 ThreadsPerCore=2 RealMemory=256000 Gres=gpu:v100:2 \\
  Feature=old
NodeName=c[1-3] Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000 Feature=old,ib
PartitionName=DEFAULT MaxTime=2-00:00:00
PartitionName=gpu Nodes=a[1-4],b[1-2] Default=YES DefMemPerGPU=60000 DefaultTime=60
PartitionName=whole Nodes=a[1-4] OverSubscribe=EXCLUSIVE MaxNodes=2 DefMemPerCPU=2000
PartitionName=some Nodes=b[1-2],c[1-3] MinNodes=2 MaxNodes=3 MaxMemPerCPU=3000 MaxCPUsPerNode=20
PartitionName=short Nodes=ALL MaxTime=30 DefCpuPerGPU=6
"""
"""Threads counted one by one, MaxMemPerNode of the cluster, MemSpecLimit, MinNodes, a default per GPU."""

CORES = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Core,CR_ONE_TASK_PER_CORE
GresTypes=gpu
EnforcePartLimits=NO
NodeName=DEFAULT State=CLOUD
NodeName=a[1-3] Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000 Gres=gpu:a100:8 Feature=new
NodeName=c[1-3] Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=64000 Feature=old
PartitionName=DEFAULT MaxTime=12:00:00
PartitionName=gpu Nodes=a[1-3] Default=YES MaxNodes=2
PartitionName=cpu Nodes=c[1-3] MaxMemPerNode=32000
"""
"""Cores without memory, one task per core, nothing enforced."""

SOCKETS = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Socket_Memory
GresTypes=gpu
EnforcePartLimits=ALL
DefMemPerCPU=1000
NodeName=DEFAULT State=CLOUD
NodeName=a[1-4] Sockets=4 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=256000 Gres=gpu:a100:4 Feature=new
PartitionName=DEFAULT MaxTime=12:00:00
PartitionName=gpu Nodes=a[1-4] Default=YES
PartitionName=part Nodes=a[1-2] MaxCPUsPerNode=16 MinNodes=1 MaxNodes=1
"""
"""Whole sockets."""

CLUSTERS = {
    "even": EVEN, "mixed": MIXED, "linear": LINEAR, "res": RES, "threads": THREADS, "cores": CORES, "sockets": SOCKETS,
}  # fmt: skip
