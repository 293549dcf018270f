"""Script, environment and command line: what wins, as a real sbatch has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm.clusters import CLUSTERS
from slurm.controller import Controller, started

from preflight.dialects.slurm.request import read_request
from preflight.documents.directives import read_directives
from preflight.slurm.controller.verdict import judge
from preflight.slurm.import_.importer import import_slurm
from preflight.vocabulary.machine import Cluster
from preflight.vocabulary.project import Submission
from preflight.vocabulary.text import Source

pytestmark = pytest.mark.integration

TOO_MUCH = "--mem=300G"
CASES: list[tuple[str, dict[str, str], list[str]]] = [
    (f"#SBATCH {TOO_MUCH}\n", {}, []),
    (f"#SBATCH {TOO_MUCH}\n", {"SBATCH_MEM_PER_NODE": "1G"}, []),
    ("#SBATCH --mem=1G\n", {"SBATCH_MEM_PER_NODE": "300G"}, []),
    ("#SBATCH --mem=1G\n", {"SBATCH_MEM_PER_NODE": "300G"}, ["--mem=2G"]),
    ("#SBATCH --mem-per-cpu=1G\n", {"SBATCH_MEM_PER_NODE": "300G"}, []),
    ("#SBATCH --mem-per-cpu=1G\n", {}, ["--mem=2G"]),
    ("", {"SBATCH_MEM_PER_NODE": "1G", "SBATCH_MEM_PER_CPU": "1G"}, []),
    ("", {"SBATCH_MEM_PER_NODE": "1G", "SBATCH_MEM_PER_CPU": "1G"}, ["--mem=2G"]),
    ("#SBATCH -p cpu\n", {"SBATCH_PARTITION": "nope"}, []),
    ("#SBATCH -p nope\n", {}, ["-p", "cpu"]),
    ("#SBATCH -p cpu --gres=gpu:1\n", {"SBATCH_PARTITION": "gpu"}, []),
    ("#SBATCH --mem=abc\n#SBATCH --mem=1G\n", {}, []),
    ("#SBATCH --mem=abc\n", {}, ["--mem=1G"]),
    ("#SBATCH -N1\nhostname\n#SBATCH --mem=300G\n", {}, []),
    ("##SBATCH --mem=300G\n # SBATCH --mem=300G\n #SBATCH --mem=300G\n", {}, []),
    ("cat <<EOF\n#SBATCH --mem=300G\nEOF\n", {}, []),
    ("# a comment\n\n#SBATCH --mem=300G # GiB\n", {}, []),
    ("#SBATCH --mem=1G\n#SBATCH hetjob\n#SBATCH --mem=300G\n", {}, []),
    ("#SBATCH --mem=300G\n#SBATCH hetjob\n#SBATCH -N1\n", {}, []),
    ("#SBATCH --mem=1G\n#SBATCH hetjob\n#SBATCH --mem-per-cpu=1G\n", {}, []),
    ("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N9\n", {}, []),
    ("", {}, ["-N1", ":", "-N9"]),
    ("", {}, ["-N1", ":", "-N2", "--mem=300G"]),
    ("#SBATCH --gpus-per-node=4 --gres=gpu:2\n", {}, []),
    ("#SBATCH --nodes=$N\n", {}, []),
    ("#SBATCH --unknown-option=1\n", {}, []),
    ("#SBATCH --mem=1G word --mem=300G\n", {}, []),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Controller, Cluster]]:
    with started(CLUSTERS["even"], tmp_path_factory.mktemp("even")) as controller:
        yield controller, import_slurm(controller.conf)


@pytest.mark.parametrize(("body", "environment", "arguments"), CASES)
def test_what_wins(
    body: str, environment: dict[str, str], arguments: list[str], cluster: tuple[Controller, Cluster]
) -> None:
    controller, described = cluster
    script = f"#!/bin/bash\n{body}\nhostname\n"
    real = controller.test_only(arguments, script, **environment)
    directives, ignored = read_directives(script)
    request, problems = read_request(Source("job.sh", script), directives, Submission(tuple(arguments), environment))
    refused = [one.message for one in problems if one.severity == "error"]
    refused += [one.message for one in ignored if one.reason in ("after-word", "quote")]
    refused += [one.name for one in directives if not one.known]
    accepted = not refused and judge(request, described).answer is None
    assert accepted == real.accepted, real.text
