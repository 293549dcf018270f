"""Job scripts in the styles that computing centres show their users: what is read of each, and that none is stopped.

The table was checked by hand against what sbatch, srun and the launchers do with each script.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.commands.check import command
from preflight.slurm.sbatch.arguments import parse
from preflight.slurm.sbatch.asking import asked, read
from preflight.slurm.sbatch.question import Question

SCRIPTS = Path(__file__).parent / "site_scripts"
PROGRAM = """\
import argparse

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--deepspeed", default=None)
parser.add_argument("data", nargs="?")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
training = TrainingArguments(
    output_dir="out", per_device_train_batch_size=args.bs, bf16=True, seed=args.seed,
    dataloader_num_workers=args.workers, deepspeed=args.deepspeed,
)
Trainer(model=model, args=training, train_dataset=data).train()
"""
SETTINGS = "machine = 'cluster.toml'\n[set]\ntrain.seq_len = 1024\ndata.sample_bytes = 16384\n"
CLUSTER = """\
slurm_version = "22.05"

[node.g]
hosts = "g[01-08]"
memory = "515000MB"
cpus = 64
gpu = "A100 40GB"
gpus = 4
gpu_type = "a100"
features = ["ib"]

[partition.gpu]
nodes = ["g"]
default = true
max_minutes = 2880
default_memory_per_cpu = "4GB"
"""
INHERITS = "slurm-tasks-mismatch"
"""srun of 22.05 does not inherit --cpus-per-task."""

READ = {
    # name: how many programs; each one's batch, nodes, processes per node, strategy; GiB and CPUs of a node; findings
    "accelerate": (1, 8, 4, 4, "ddp", 256, 64, {INHERITS}),
    "apptainer": (1, 16, 1, 2, "none", 120, 16, {INHERITS}),
    "array_lines_of_a_file": (1, None, 1, 1, "none", 32, 8, {"fits-only-if"}),
    "array_seeds": (1, 16, 1, 1, "none", 32, 8, set()),
    "background_loop": (4, 16, 1, 1, "none", 200, 32, set()),
    "background_steps": (4, 16, 1, 1, "none", 128, 32, set()),
    "deepspeed_hostfile": (1, 8, 2, 4, "ddp", 200, 32, set()),
    "generated_config": (1, 16, 1, 1, "none", 48, 8, set()),
    "heredoc_deepspeed": (1, 4, 1, 4, "zero2", 502, 64, set()),  # the script writes its configuration
    "launch_function": (1, 8, 1, 4, "ddp", 128, 32, set()),
    "modules_and_tmpdir": (1, 16, 1, 1, "none", 32, 1, set()),
    "multinode_torchrun": (1, 8, 4, 1, "ddp", 64, 4, {INHERITS}),
    "pyxis": (1, 8, 2, 4, "none", 502, 64, set()),
    "requeue": (1, 16, 1, 2, "none", 100, 16, {INHERITS}),
    "srun_gpus_per_task": (1, 16, 2, 4, "none", 256, 64, {INHERITS}),
    "step_cpus": (1, 16, 1, 4, "none", 240, 32, {INHERITS}),
}
GIB = 2**30


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(SCRIPTS, root, dirs_exist_ok=True)
    for name, text in {"train.py": PROGRAM, "preflight.toml": SETTINGS, "cluster.toml": CLUSTER}.items():
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def said(project: Path) -> dict[str, Any]:
    """What `preflight check` says of all of them."""
    before = Path.cwd()
    os.chdir(project)
    try:
        ran = CliRunner().invoke(command, [*(f"{name}.sh" for name in READ), "--output-format", "json"])
    finally:
        os.chdir(before)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_every_script_has_a_row() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.sh")} == set(READ)


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str, said: dict[str, Any]) -> None:
    count, batch, nodes, ranks, strategy, memory, cpus, rules = READ[name]
    studies = [study for study in said["studies"] if study["paths"][0] == f"{name}.sh"]
    assert len(studies) == count
    for study in studies:
        job = study["worst"]
        parallel, machine = job["parallel"], job["machine"]
        assert job["train"]["batch_size"] == batch
        assert (parallel["nodes"], parallel["ranks_per_node"], parallel["strategy"]) == (nodes, ranks, strategy)
        assert (machine["memory_limit"] // GIB, machine["cpus"]) == (memory, cpus)
        assert machine["gpu"] == "A100 40GB"
    findings = [one for one in said["findings"] if one["path"] == f"{name}.sh"]
    assert {one["rule"] for one in findings} - {"slurm-over-request"} == rules
    assert not [one for one in findings if one["severity"] == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_none_is_stopped_nor_said_anything_wrong_of(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("PREFLIGHT_MACHINE", "cluster.toml")
    script = (SCRIPTS / f"{name}.sh").read_bytes()
    found = asked(Question(parse([f"{name}.sh"]), "on", script, f"{name}.sh", os.devnull), script.decode())
    assert found is not None
    answer = read(Question(parse([f"{name}.sh"]), "on", script, f"{name}.sh", os.devnull), found)
    assert (answer["stop"], answer["unchecked"]) == (False, "")
    assert "error[" not in str(answer["text"])
