"""Two clusters to ask real controllers about."""

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

CLUSTERS = {"even": EVEN, "mixed": MIXED}
