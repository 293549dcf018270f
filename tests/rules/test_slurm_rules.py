"""SLURM's rules through the whole engine, on scripts beside one small training program."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.findings import Finding, Safety
from preflight.vocabulary.settings import Settings
from preflight_rules.shared.programs import CLUSTER, DISTRIBUTED, TRAIN, job

MIB = 2**20
LINE = "srun python train.py --batch_size 64 --workers 4"


def findings(
    root: Path,
    script: str,
    rule: str,
    sample: int | None = 16 * MIB,
    cluster: str | None = CLUSTER,
    program: str = TRAIN,
) -> list[Finding]:
    files = {"train.sbatch": script, "train.py": program, **({"cluster.toml": cluster} if cluster else {})}
    for name, text in files.items():
        (root / name).write_bytes(text.encode())
    known = {"data.sample_bytes": sample} if sample is not None else {}
    settings = Settings(set=known, machine="cluster.toml" if cluster else None)
    project, asked = engine.setup(Batch(root, settings, None, ("train.sbatch",), ()), engine.CheckOptions(), root)
    report = engine.check(project, asked)
    assert not [one for one in report.findings if one.rule == "internal-error"], report.findings
    return [one for one in report.findings if one.rule == rule]


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ("--mem=32G", "101G"),
        ("--mem-per-cpu=1G", None),
        ("--mem-per-gpu=8G", None),
    ],
)
def test_every_way_to_ask_for_memory_is_raised_where_it_is_written(
    memory: str, text: str | None, tmp_path: Path
) -> None:
    script = job("--ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", memory, line=LINE)
    [finding] = findings(tmp_path, script, "slurm-memory-too-low")
    assert finding.origin is not None
    assert script[finding.origin.span.start : finding.origin.span.end] == memory.partition("=")[2]
    assert finding.fix is not None
    assert finding.fix.safety is Safety.safe
    [edit] = finding.fix.edits
    assert edit.span == finding.origin.span
    if text is not None:
        assert edit.text == text


def test_too_little_by_the_clusters_default(tmp_path: Path) -> None:
    script = job("--ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=2", line=LINE)
    cluster = CLUSTER.replace("default = true", 'default = true\ndefault_memory_per_cpu = "2GB"')
    [finding] = findings(tmp_path, script, "slurm-memory-too-low", cluster=cluster)
    assert "the default per cpu gives 16 GiB per node" in finding.message
    [proposal] = finding.proposals
    [change] = proposal.changes
    assert (change.field, change.value, proposal.safety) == ("request.memory", 101 * 2**30, Safety.safe)


def test_a_node_that_is_full_is_not_slurms_fault(tmp_path: Path) -> None:
    cluster = CLUSTER.replace("256000MB", "32GB")
    script = job("--ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", "--mem=32G", line=LINE)
    assert findings(tmp_path, script, "slurm-memory-too-low", cluster=cluster) == []


def test_nobody_said_what_the_node_has(tmp_path: Path) -> None:
    script = job("--ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", "--mem=32G", line=LINE)
    [finding] = findings(tmp_path, script, "slurm-memory-too-low", cluster=None)
    assert all(proposal.safety is Safety.unsafe for proposal in finding.proposals)


def test_small_jobs_need_not_say_how_much(tmp_path: Path) -> None:
    script = job("--ntasks-per-node=1", "--gres=gpu:1", line=LINE)
    assert findings(tmp_path, script, "slurm-memory-unstated", sample=1024, cluster=None) == []


# --- shapes -----------------------------------------------------------------------------------------------------------

FOUR = ("--gres=gpu:4", "--cpus-per-task=8", "--mem=200G")


@pytest.mark.parametrize(
    ("directives", "line"),
    [
        (("--ntasks-per-node=4", *FOUR), LINE),
        (("--ntasks=4", *FOUR), "srun --cpu-bind=none python train.py"),
        (("--ntasks-per-node=1", *FOUR), "torchrun --nproc_per_node=4 train.py"),
        (("--ntasks-per-node=1", "--nodes=2", *FOUR), "srun torchrun --nnodes=2 --nproc_per_node=4 train.py"),
        (("--ntasks-per-node=4", *FOUR), "srun --ntasks-per-node=1 torchrun --nproc_per_node=4 train.py"),
        (("--nodes=2", *FOUR), "srun accelerate launch --num_machines 2 --num_processes 8 train.py"),
        (("--nodes=1", *FOUR), "python train.py"),
        (("--nodes=1",), "python train.py"),
        (("--ntasks-per-node=1", "--nodes=2", *FOUR), "bash -c 'srun torchrun --nnodes=2 --nproc_per_node=4 train.py'"),
        (
            ("--nodes=2", "--ntasks-per-node=4", *FOUR),
            "LAUNCH='srun --wait=60'\npython -c 'print(1)'\n$LAUNCH python train.py",
        ),
        (("--nodes=2", "--ntasks-per-node=4", *FOUR), "start() {\n  srun python train.py\n}\npython prepare.py\nstart"),
        (("--nodes=2", "--ntasks-per-node=4", *FOUR), "srun --nodes=2 ray start --head &\npython train.py"),
        (("--nodes=4",), "dcgmi profile --pause\nsrun torchrun --nnodes 4 --nproc_per_node 8 -m elsewhere.train"),
        (("--nodes=4",), "python elsewhere.py"),
        (("--nodes=4",), "mpirun -np 16 python train.py"),
        (("--nodes=1", *FOUR), "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py"),
    ],
)
def test_what_adds_up(directives: tuple[str, ...], line: str, tmp_path: Path) -> None:
    found = findings(tmp_path, job(*directives, line=line), "slurm-tasks-mismatch", None, None, DISTRIBUTED)
    assert [one.message for one in found] == []


@pytest.mark.parametrize("tasks", [8, 2])
def test_tasks_that_know_nothing_of_each_other_may_share_gpus_or_use_several(tasks: int, tmp_path: Path) -> None:
    script = job(f"--ntasks-per-node={tasks}", *FOUR, line=LINE)
    assert findings(tmp_path, script, "slurm-tasks-mismatch", None, None) == []


@pytest.mark.parametrize(
    ("directives", "line", "words"),
    [
        (("--ntasks-per-node=8", *FOUR), LINE, "8 processes per node on 4 GPUs"),
        (("--ntasks-per-node=2", *FOUR), LINE, "2 GPUs of each node stay idle"),
        (("--ntasks-per-node=4", *FOUR), "srun torchrun --nproc_per_node=4 train.py", "16 processes on 4 GPUs"),
        (("--ntasks-per-node=1", *FOUR), "srun torchrun --nproc_per_node=8 train.py", "8 processes per node on 4 GPUs"),
        (("--nodes=4", *FOUR), "srun torchrun --nnodes=2 --nproc_per_node=4 train.py", "set to 2 nodes, and 4"),
        (("--nodes=2", *FOUR), "torchrun --nproc_per_node=4 train.py", "on the first node only"),
        (("--nodes=2", *FOUR), "# srun comes later\npython train.py", "on the first node only"),
        (("--nodes=2", *FOUR), "torchrun --nproc_per_node=4 --nnodes=2 elsewhere.py", "on the first node only"),
        (("--nodes=2", *FOUR), "srun accelerate launch --num_machines 2 --num_processes 4 train.py", "2 GPUs of each"),
    ],
)
def test_what_does_not(directives: tuple[str, ...], line: str, words: str, tmp_path: Path) -> None:
    found = findings(tmp_path, job(*directives, line=line), "slurm-tasks-mismatch", None, None, DISTRIBUTED)
    assert any(words in one.message for one in found), [one.message for one in found]


LIGHTNING = """
import lightning as L
import torch
from torch.utils.data import DataLoader

from data import dataset
from model import Module

loader = DataLoader(dataset, batch_size=8, shuffle=True)
trainer = L.Trainer(devices=4, num_nodes=2, max_epochs=3)
trainer.fit(Module(), loader)
"""


@pytest.mark.parametrize(
    ("directives", "words"),
    [
        (("--nodes=2", "--ntasks-per-node=4", *FOUR), None),
        (("--nodes=2", "--ntasks-per-node=1", *FOUR), "Trainer(devices=4) needs 4 tasks per node, and srun starts 1"),
        (("--nodes=1", "--ntasks-per-node=4", *FOUR), "Trainer(num_nodes=2) needs 2 nodes, and srun starts 1"),
    ],
)
def test_lightning_wants_a_task_per_device(directives: tuple[str, ...], words: str | None, tmp_path: Path) -> None:
    script = job(*directives, line="srun python fit.py")
    (tmp_path / "fit.py").write_text(LIGHTNING)
    found = findings(tmp_path, script, "slurm-tasks-mismatch", None, None)
    assert [one.message for one in found if "Trainer" in one.message] == ([words] if words is not None else [])


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "line", "lost"),
    [
        ("22.05", LINE, True),
        ("23.02", LINE, True),
        ("21.08", LINE, False),
        ("23.11", LINE, False),
        (None, LINE, False),
        ("22.05", LINE.replace("srun", "srun -c 8"), False),
        ("22.05", LINE.replace("srun", "srun --cpus-per-task=$SLURM_CPUS_PER_TASK"), False),
        ("22.05", f"export SRUN_CPUS_PER_TASK=8\n{LINE}", False),
        ("22.05", LINE.removeprefix("srun "), False),
    ],
)
def test_a_step_inherits_cpus_by_version(version: str | None, line: str, lost: bool, tmp_path: Path) -> None:
    cluster = CLUSTER if version is None else f'slurm_version = "{version}"\n{CLUSTER}'
    script = job("--ntasks-per-node=1", "--gres=gpu:1", "--cpus-per-task=8", "--mem=64G", line=line)
    found = [
        one for one in findings(tmp_path, script, "slurm-tasks-mismatch", cluster=cluster) if "inherit" in one.message
    ]
    assert len(found) == int(lost)
    if lost:
        assert script[found[0].origin.span.start : found[0].origin.span.end] == "8"  # type: ignore[union-attr]
        assert found[0].fix is not None
        assert found[0].fix.edits[0].text == 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"\n'


def test_dos_line_breaks_are_repaired(tmp_path: Path) -> None:
    script = job("--gres=gpu:1", "--mem=64G", line=LINE)
    [finding] = [
        one
        for one in findings(tmp_path, script.replace("\n", "\r\n"), "slurm-directive-ignored")
        if "DOS" in one.message
    ]
    assert finding.fix is not None
    assert finding.fix.safety is Safety.safe
    text = script.replace("\n", "\r\n")
    for edit in sorted(finding.fix.edits, key=lambda edit: -edit.span.start):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    assert text == script
