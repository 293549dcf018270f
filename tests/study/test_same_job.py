"""Which options of a Hydra tree are studies of their own: those that give another job."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra_program import HYDRA, write

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

TREE = {
    "train.py": HYDRA,
    "conf/config.yaml": "defaults:\n  - data: small\n  - logger: csv\n  - _self_\nseed: 1\n",
    "conf/data/small.yaml": "batch_size: 16\nworkers: 4\n",
    "conf/logger/csv.yaml": "folder: runs\n",
    "conf/logger/wandb.yaml": "folder: runs\nproject: p\n",
}
JOB = {"conf/data/large.yaml": "batch_size: 256\nworkers: 4\n"}


def project(root: Path, files: dict[str, str], settings: Settings | None = None) -> Project:
    write(files, root)
    return Project(root, settings or Settings())


@pytest.mark.parametrize(
    ("added", "studies"),
    [
        pytest.param(JOB, 2, id="another batch"),
        pytest.param({"conf/data/twin.yaml": "batch_size: 16\nworkers: 8\n"}, 2, id="other workers"),
        pytest.param({"run.sh": "python train.py\npython train.py\n"}, 2,
                     id="two launches of one job are two studies"),
        pytest.param({"run.sbatch": "#!/bin/bash\n#SBATCH --mem=1G\nsrun python train.py\n"}, 2,
                     id="a job script asks for a machine"),
        pytest.param({}, 1, id="a logger"),
        pytest.param({"conf/data/same.yaml": "workers: 4\nbatch_size: 16\n"}, 2,
                     id="the same values on lines of its own, which have to be changed as well"),
        pytest.param({"conf/debug/one.yaml": "# @package _global_\ndata:\n  batch_size: 16\n"}, 2,
                     id="an override by the value of the defaults"),
        pytest.param({"conf/experiment/a.yaml": "# @package _global_\nseed: 2\n"}, 1, id="a seed"),
    ],
)  # fmt: skip
def test_options_of_one_job_are_one_study(added: dict[str, str], studies: int, tmp_path: Path) -> None:
    files = {**TREE, **added}
    found, skipped = build(sorted(files), project(tmp_path, files))
    assert len(found) == studies, [study.paths for study in found]
    assert not skipped


def test_the_study_that_is_kept_has_the_files_of_those_it_stands_for(tmp_path: Path) -> None:
    [study], _ = build(sorted(TREE), project(tmp_path, TREE))
    assert study.paths[0] == "train.py"
    assert "conf/logger/wandb.yaml" in study.paths


def test_what_is_wrong_in_an_option_is_still_said(tmp_path: Path) -> None:
    files = {**TREE, "conf/logger/wandb.yaml": "folder: ${nowhere}\nfolder: twice\n"}
    [study], _ = build(sorted(files), project(tmp_path, files))
    assert "conf/logger/wandb.yaml" in {problem.origin.path for problem in study.problems}


def test_an_option_that_is_given_alone_is_a_study(tmp_path: Path) -> None:
    [study], _ = build(["conf/logger/wandb.yaml"], project(tmp_path, TREE))
    assert study.paths[0] == "conf/logger/wandb.yaml"


def test_a_constraint_may_speak_of_any_setting(tmp_path: Path) -> None:
    settings = Settings(constraints={"seed": "seed >= 0"})
    found, _ = build(sorted(TREE), project(tmp_path, TREE, settings))
    assert len(found) == 2
