"""preflight's verdict beside that of `sbatch --test-only` of a real controller: accepted or refused, and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.clusters import CLUSTERS
from slurm.compare import asked, ours, theirs
from slurm.controller import Controller, started
from slurm.generated import request
from slurm.given import Part, given

from preflight.slurm.controller.job import CLIENT
from preflight.slurm.import_.importer import import_slurm
from preflight.vocabulary.machine import Cluster

pytestmark = pytest.mark.integration

RECORDED = (
    (Path(__file__).parents[1] / "dialects" / "slurm" / "slurm_verdicts.txt").read_text(encoding="utf-8").splitlines()
)

Asked = tuple[str, Controller, Cluster]


@pytest.fixture(scope="module", params=list(CLUSTERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A cluster's name, its controller, and what preflight imports of it."""
    directory = tmp_path_factory.mktemp(str(request.param))
    with started(CLUSTERS[request.param], directory) as controller:
        yield request.param, controller, import_slurm(controller.conf)


def different(options: list[str], controller: Controller, described: Cluster) -> str | None:
    """How the two verdicts differ; None: they do not. Two refusals by sbatch itself need not name the same option."""
    answer = controller.test_only(options)
    real, own = theirs(answer.code, answer.text), ours(options, described)
    if real.accepted == own.accepted and (real.answer == own.answer or CLIENT in (real.answer, own.answer)):
        return None
    return f"{' '.join(options)}\n  slurm: {real}\n  preflight: {own}"


def test_generated_requests(cluster: Asked) -> None:
    name, controller, described = cluster
    found = [different(request(seed, name), controller, described) for seed in range(300)]
    assert [one for one in found if one is not None] == []


def test_recorded_requests(tmp_path: Path) -> None:
    with started(CLUSTERS["even"], tmp_path) as controller:
        described = import_slurm(controller.conf)
        for line in RECORDED:
            options, code, _ = (part.strip() for part in line.split("|"))
            words = [word.strip("\"'") if word.startswith("--mem=\"'") else word for word in options.split(" ")]
            words = [options.replace("\"'", "").replace("'\"", "")] if "\"'" in options else words
            assert controller.test_only(words).accepted == (code == "rc=0"), options
            assert different(words, controller, described) is None


def test_what_jobs_are_given(cluster: Asked) -> None:
    """CPUs, memory and GPUs on every node, from `scontrol show job -d`.

    The controller prefers nodes that are up or of little weight, which preflight does not know: where it takes others,
    there is nothing to compare.
    """
    from preflight.slurm.controller.verdict import judge

    name, controller, described = cluster
    kind = {host: node.name for node in described.nodes for host in _hosts(node.hosts or "")}
    counted = set("_".join(described.select_parameters).split("_"))
    compared, wrong = 0, []
    for seed in range(1000, 1250):
        options = request(seed, name)
        if ":" in options or any(one.startswith(NOT_NOW) for one in options):
            continue
        made, problems = asked(options)
        verdict = judge(made, described)
        if verdict.answer is not None or any(one.severity == "error" for one in problems):
            continue
        found = given(controller, options)
        if found is None:
            continue
        parts, cpus = found
        real = [_of_kind(part, kind) for part in parts]
        own = [(kind[one.host.name], one.cpus, (one.memory or 0) // 2**20, one.gpus) for one in verdict.shares]
        if sorted(part[0] for part in own) != sorted(part[0] for part in real):
            continue
        if made.gres and not any(part.gpus for part in parts):
            continue  # asked for GPUs in two ways, it may give none (22.05)
        compared += 1
        shown = all(part.gpus >= 0 for part in parts)
        each = not {"CPU"} & counted  # else scontrol shows a core's threads, whichever the job has
        right = _seen(own, each, "MEMORY" in counted, shown) == _seen(real, each, "MEMORY" in counted, shown)
        if not right or sum(part[1] for part in own) != (cpus if not each else sum(part[1] for part in real)):
            wrong.append(f"{' '.join(options)}\n  slurm: {real} {cpus}\n  preflight: {own}")
    assert wrong == []
    assert compared > 15


NOT_NOW = ("--array", "--begin", "--deadline", "--dependency", "--hold", "--core-spec", "--thread-spec")
"""Options of jobs that do not start at once, or of which a part of the node is taken away."""

Shown = tuple[str, int, int, int]


def _seen(parts: list[Shown], cpus: bool, memory: bool, gpus: bool) -> list[Shown]:
    """What can be compared: the rest as 0."""
    return sorted((kind, of * cpus, size * memory, number * gpus) for kind, of, size, number in parts)


def _hosts(text: str) -> list[str]:
    from preflight.machines.hostlist import expand

    return expand(text)


def _of_kind(part: Part, kind: dict[str, str]) -> tuple[str, int, int, int]:
    return kind[part.host], part.cpus, part.memory, part.gpus


MANY_NODES = (
    "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"
    "NodeName=n[1-110] CPUs=4 RealMemory=8000 State=CLOUD\nPartitionName=p Nodes=ALL Default=YES\n"
)


def test_fewer_nodes_than_the_list_names(tmp_path: Path) -> None:
    with started(MANY_NODES, tmp_path) as controller:
        described = import_slurm(controller.conf)
        for options, accepted in (
            (["--nodes=1", "--nodelist=n[1-104]"], False),
            (["--nodes=1-1", "--nodelist=n[1-2]"], False),
            (["--nodes=1-2", "--nodelist=n[1-2]"], True),
            (["--nodelist=n[1-104]"], True),
            (["--nodes=2", "--nodelist=n1"], False),
            (["--nodes=1", "--exclude=n[1-104]"], True),
        ):
            assert controller.test_only(options).accepted is accepted, options
            assert different(options, controller, described) is None
