"""`preflight machine import slurm` from a live controller and from its slurm.conf."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from slurm.clusters import CLUSTERS
from slurm.controller import find, started

from preflight.commands.machine import command
from preflight.machines.clusters import dump_machine, load_machine
from preflight.slurm.import_.ask import _by_sinfo
from preflight.slurm.import_.conf import cluster_of
from preflight.slurm.import_.importer import by_type, import_slurm, nodes_alone
from preflight.vocabulary.errors import UsageError

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_controller_and_its_slurm_conf_say_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(CLUSTERS[name], tmp_path) as controller:
        monkeypatch.setenv("SLURM_CONF", str(controller.conf))
        monkeypatch.setenv("PATH", f"{Path(find('scontrol') or '').parent}:{os.environ['PATH']}")
        live = import_slurm()
        written = import_slurm(controller.conf)
        lines, who = _by_sinfo(), "sinfo"
    listed = nodes_alone(cluster_of(lines, who))
    assert by_type(listed).nodes == tuple(replace(node, memory_reserved=None) for node in live.nodes)
    for one in by_type(listed).partitions:
        told = next(partition for partition in live.partitions if partition.name == one.name)
        assert (one.nodes, one.default, one.exclusive) == (told.nodes, told.default, told.exclusive)
        assert (one.max_minutes, one.default_minutes) == (told.max_minutes, told.default_minutes)
        assert (one.min_nodes, one.max_nodes) == (told.min_nodes or 1, told.max_nodes)
        assert one.max_cpus_per_node == told.max_cpus_per_node
    assert live.slurm_version is not None
    assert replace(live, slurm_version=None, path=None) == replace(written, path=None)
    (tmp_path / "cluster.toml").write_text(dump_machine(live))
    assert replace(load_machine(tmp_path / "cluster.toml"), path=None) == replace(live, path=None)
    shown = CliRunner().invoke(command, ["show", str(tmp_path / "cluster.toml")])
    assert shown.exit_code == 0
    assert all(node.name in shown.output for node in live.nodes)


def test_a_controller_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(CLUSTERS["even"], tmp_path) as controller:
        conf = controller.conf
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PATH", f"{Path(find('scontrol') or '').parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=r"scontrol show config -o failed: .*Unable to contact slurm controller"):
        command.main(["import", "slurm"], standalone_mode=False)
