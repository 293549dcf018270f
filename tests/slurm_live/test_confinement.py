"""What a real controller says about holding jobs to the memory they asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm.controller import find, started

from preflight.slurm.sbatch.asking import confined

pytestmark = pytest.mark.integration

NODES = "SelectType=select/cons_tres\nNodeName=n[1-2] CPUs=4 RealMemory=8000 State=CLOUD\nPartitionName=p Nodes=ALL\n"


@pytest.mark.parametrize(
    ("conf", "cgroup", "held"),
    [
        ("TaskPlugin=task/cgroup,task/affinity\n", "ConstrainRAMSpace=yes\n", True),
        ("TaskPlugin=task/cgroup\n", "ConstrainRAMSpace=no\n", False),
        ("TaskPlugin=task/affinity\n", "ConstrainRAMSpace=yes\n", False),
        ("TaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill\n", "", True),
        ("TaskPlugin=task/none\n", "", False),
    ],
)
def test_confinement(conf: str, cgroup: str, held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(NODES + conf, tmp_path, {"cgroup.conf": f"CgroupPlugin=cgroup/v1\n{cgroup}"}) as controller:
        monkeypatch.setenv("SLURM_CONF", str(controller.conf))
        assert confined(find("scontrol") or "") is held


def test_no_controller_is_no_confinement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert not confined(find("scontrol") or "scontrol")
