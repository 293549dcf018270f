"""The controller that the other tests here ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm.controller import started

pytestmark = pytest.mark.integration

CONF = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-2] CPUs=4 RealMemory=8000 State=CLOUD
PartitionName=p Nodes=n[1-2] Default=YES
"""


def test_a_controller_answers(tmp_path: Path) -> None:
    with started(CONF, tmp_path) as controller:
        assert controller.test_only(["--mem=8000"]).accepted
        refused = controller.test_only(["--mem=8001"])
        assert not refused.accepted
        assert "Requested node configuration is not available" in refused.text
