"""Hydra's sweeps and launchers: axes, branches, trials that share a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra_trees import CONFIG, TREE, at, expr, launched, one_word, problems, tree

from preflight.dialects.hydra import reader as hydra
from preflight.vocabulary.budgets import COMPOSITIONS
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.values import Axis, Choices, Const, Range, Ref, Unknown, evaluate


def axis(reading: Reading, name: str) -> Axis:
    [found] = [one for one in reading.axes if one.name == name]
    return found


def test_a_multirun_is_a_search_space(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(
        project, "-m", "data.batch_size=8,16,32", "lr=interval(1e-5,1e-3)", "model.length=range(64,257,64)"
    )
    batch = axis(reading, "data.batch_size").domain
    assert isinstance(batch, Choices)
    assert batch.values == (8, 16, 32)
    assert [at(project, origin) for origin in batch.origins] == ["job.sh:1 8", "job.sh:1 16", "job.sh:1 32"]
    lr, length = axis(reading, "lr").domain, axis(reading, "model.length").domain
    assert isinstance(lr, Range)
    assert isinstance(length, Range)
    assert (lr.low, lr.high, lr.step) == (1e-5, 1e-3, None)
    assert (length.low, length.high, length.size()) == (64, 256, 4)
    assert evaluate(expr(reading, "data.max_length"), {"model.length": Const(192)}) == 192
    assert problems(reading) == []


@pytest.mark.parametrize("where", ["word", "file"])
def test_the_mode_may_say_it_instead(where: str, tmp_path: Path) -> None:
    text = CONFIG + ("hydra: {mode: MULTIRUN}\n" if where == "file" else "")
    extra = ["hydra.mode=MULTIRUN"] if where == "word" else []
    reading = launched(tree(tmp_path, {**TREE, "conf/config.yaml": text}), *extra, "data.batch_size=8,16")
    assert axis(reading, "data.batch_size").domain.values == (8, 16)  # type: ignore[union-attr]
    assert problems(reading) == []


def test_swept_groups_are_branches(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    reading = launched(project, "--multirun", "model=small,large", "data.batch_size=1,2")
    assert [branch.fixed for branch in reading.branches] == [{"model": "small"}, {"model": "large"}]
    widths = [{one.key: evaluate(one.expr) for one in branch.settings}["model.width"] for branch in reading.branches]
    assert widths == [64, 1024]
    both = expr(reading, "model.width")
    assert [evaluate(both, {"model": Const(name)}) for name in ("small", "large")] == [64, 1024]
    assert isinstance(evaluate(expr(reading, "model.dropout"), {"model": Const("small")}), Unknown)


def test_a_group_that_an_outer_sweep_chooses(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    call = Call("train.py", (one_word("model=", Ref("\0model")),))
    reading = hydra.read(project.source("conf/config.yaml"), call, project)
    assert {tuple(branch.fixed.items()) for branch in reading.branches} == {
        (("model", "large"),),
        (("model", "small"),),
    }
    assert reading.axes == ()


SWEEPER = """\
defaults:
  - model: small
  - data: text
  - _self_
  - override hydra/sweeper: {sweeper}
  - override hydra/launcher: {launcher}
lr: 1
length: 2
hydra:
  sweeper:
    n_trials: 10
    params:
      lr: tag(log, interval(1e-5, 1e-2))
      model.length: range(64, 256, 64)
      data.batch_size: choice(8, 16)
"""


@pytest.mark.parametrize(("sweeper", "last"), [("optuna", 256), ("basic", 192)])
def test_the_sweepers_own_parameters(sweeper: str, last: int, tmp_path: Path) -> None:
    """Optuna's sweeper counts the stop of a range of whole numbers in, Hydra's own does not."""
    text = SWEEPER.format(sweeper=sweeper, launcher="basic").replace("    n_trials: 10\n", "")
    project = tree(tmp_path, {**TREE, "conf/config.yaml": text})
    reading = launched(project, "-m")
    length, lr = axis(reading, "model.length").domain, axis(reading, "lr").domain
    assert isinstance(length, Range)
    assert isinstance(lr, Range)
    assert (length.low, length.high, lr.log) == (64, last, True)
    batch = axis(reading, "data.batch_size")
    assert isinstance(batch.domain, Choices)
    assert [at(project, origin) for origin in batch.domain.origins] == [
        "conf/config.yaml:14 8",
        "conf/config.yaml:14 16",
    ]
    assert launched(project, "lr=3").axes == ()


@pytest.mark.parametrize(
    ("launcher", "extra", "at_once"),
    [("basic", "", None), ("joblib", "", 2), ("joblib", "    n_jobs: 4\n", 4), ("submitit_slurm", "", None)],
)
def test_trials_that_share_the_machine(launcher: str, extra: str, at_once: int | None, tmp_path: Path) -> None:
    """The basic launcher runs what the sweeper hands over one after the other; joblib's runs it at once."""
    text = SWEEPER.format(sweeper="optuna", launcher=launcher).replace("    n_trials: 10\n", extra)
    reading = launched(tree(tmp_path, {**TREE, "conf/config.yaml": text}), "-m")
    found = {binding.field: evaluate(binding.expr) for binding in reading.bindings}
    assert found == ({} if at_once is None else {"parallel.trials_per_gpu": at_once})


def test_the_submitit_request(tmp_path: Path) -> None:
    launcher = (
        "hydra:\n  launcher:\n    mem_gb: 64\n    gpus_per_node: 4\n    nodes: 2\n"
        "    tasks_per_node: ${.gpus_per_node}\n    cpus_per_task: 8\n    partition: gpu\n"
        "    timeout_min: 600\n    memory: 3\n"
    )
    text = CONFIG.replace("  - _self_\n", "  - _self_\n  - override hydra/launcher: submitit_slurm\n") + launcher
    project = tree(tmp_path, {**TREE, "conf/config.yaml": text})
    reading = launched(project, "-m", "model.length=64,128")
    request = reading.request
    assert request is not None
    assert (request.memory, request.gpus_per_node, request.nodes, request.tasks_per_node) == (64 * 2**30, 4, 2, 4)
    assert (request.cpus_per_task, request.partition, request.time_minutes) == (8, "gpu", 600)
    assert at(project, request.origins["memory"]).endswith(" 64")
    [problem] = problems(reading, "error")
    assert "unknown key 'memory'" in problem.message
    assert launched(project, "lr=1").request is None


def test_too_many_compositions_are_said(tmp_path: Path) -> None:
    files = {**TREE, **{f"conf/model/m{i}.yaml": f"width: {i}\nlength: 1\n" for i in range(40)}}
    project = tree(tmp_path, files)
    reading = launched(project, "-m", "model=" + ",".join(f"m{i}" for i in range(40)))
    assert len(reading.branches) == COMPOSITIONS
    assert any("combinations of group options" in one.message and one.severity == "warning" for one in reading.problems)
