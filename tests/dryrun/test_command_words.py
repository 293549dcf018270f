"""Which program, interpreter and ranks a command means; which commands are refused, in one line."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from preflight.dryrun.command import StartedProgram, is_program, started_by
from preflight.vocabulary.errors import UsageError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, and one with commands as pip installs them, first in PATH."""
    commands = tmp_path / "bin"
    commands.mkdir()
    python = commands / "python"
    python.symlink_to(sys.executable)
    for name in ("torchrun", "accelerate", "deepspeed", "my-train"):
        script = commands / name
        script.write_text(f"#!{python}\nprint()\n")
        script.chmod(0o755)
    long = commands / "long-path"
    long.write_text(f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n")
    long.chmod(0o755)
    (commands / "tool").write_text("#!/bin/bash\ntrue\n")
    (commands / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("")
    (work / "run.sh").write_text("python train.py\n")
    monkeypatch.chdir(work)
    return commands


REFUSED = {
    "": "name the command after --",
    "python": "a dry run needs a program or a module",
    "python -c 'import torch'": "a dry run needs a program or a module",
    "python none.py": "none.py: there is no such file",
    "no-such-python3 train.py": "no-such-python3: there is no such command",
    "bash run.sh": "run.sh is a shell script",
    "docker run image python train.py": "docker starts the program elsewhere",
    "srun --mpi=pmix apptainer exec image.sif python train.py": "apptainer starts the program elsewhere",
    "uv run python train.py": "uv starts the program elsewhere",
    "conda run -n env python train.py": "conda starts the program elsewhere",
    "ssh node python train.py": "ssh starts the program elsewhere",
    "tool --x": "tool is no Python program",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(tree: Path, text: str) -> None:
    with pytest.raises(UsageError) as error:
        started_by(shlex.split(text))
    assert REFUSED[text] in str(error.value)
    assert "\n" not in str(error.value)


def started(text: str, gpus: int | None = None) -> StartedProgram:
    return started_by(shlex.split(text), gpus)


@pytest.mark.parametrize(
    ("text", "target", "module", "arguments"),
    [
        ("python train.py --batch-size 64", "train.py", False, ("--batch-size", "64")),
        ("python -u -X dev train.py -m x=1", "train.py", False, ("-m", "x=1")),
        ("python -m package.train a=1 --b", "package.train", True, ("a=1", "--b")),
        ("env PYTHONPATH=.. python train.py", "train.py", False, ()),
        ("CUDA_VISIBLE_DEVICES=0 nohup python train.py x", "train.py", False, ("x",)),
        ("torchrun --standalone train.py --x=3 y", "train.py", False, ("--x=3", "y")),
        ("accelerate launch --num_processes 1 -m package.train --z", "package.train", True, ("--z",)),
        ("nsys profile -o out python train.py 1", "train.py", False, ("1",)),
    ],
)
def test_programs(tree: Path, text: str, target: str, module: bool, arguments: tuple[str, ...]) -> None:
    found = started(text)
    assert (found.target, found.module, found.arguments) == (target, module, arguments)
    assert found.interpreter == str(tree / "python")


def test_console_scripts(tree: Path) -> None:
    for name in ("my-train", "long-path"):
        found = started(f"{name} --x 1")
        assert (found.interpreter, found.target) == (str(tree / "python"), str(tree / name))
        assert found.arguments == ("--x", "1")


def test_what_is_started_as_it_is_and_what_is_read(tree: Path) -> None:
    """An executable script of a shell, or a sweep, is read as one that is not executable."""
    for name in ("my-train", "long-path"):
        assert is_program(str(tree / name))
    for name, text in {
        "sweep.yaml": "program: train.py\n",
        "train.sh": "#!/bin/sh\n",
        "a.py": "",
        "a": "\x7fELF\0",
    }.items():
        Path(name).write_text(text)
        assert not is_program(name)
        Path(name).chmod(0o755)
        assert is_program(name) == name.startswith("a")


@pytest.mark.parametrize(
    ("text", "gpus", "nodes", "ranks"),
    [
        ("python train.py", None, 1, 1),
        ("python train.py", 4, 1, 4),
        ("torchrun train.py", None, 1, 1),
        ("torchrun --nproc_per_node 4 --nnodes=2 train.py", None, 2, 4),
        ("torchrun --nproc-per-node=gpu train.py", None, 1, 1),
        ("torchrun --nproc-per-node=gpu train.py", 8, 1, 8),
        ("srun -n 8 -N 2 python train.py", None, 2, 4),
        ("accelerate launch --num_processes 2 train.py", None, 1, 2),
        ("deepspeed --num_gpus 2 train.py", None, 1, 2),
        ("mpirun -np 2 python train.py", None, 1, 2),
    ],
)
def test_ranks(tree: Path, text: str, gpus: int | None, nodes: int, ranks: int) -> None:
    found = started(text, gpus)
    assert (found.nodes, found.ranks_per_node) == (nodes, ranks)
    if found.launcher == "torchrun":
        assert found.environment["WORLD_SIZE"] == str(nodes * ranks)


def test_what_launchers_pass_on(tree: Path) -> None:
    assert (
        started("accelerate launch --mixed_precision bf16 train.py").environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    )
    assert started("deepspeed --num_gpus 1 train.py --x").arguments == ("--local_rank=0", "--x")
    assert started("python -m torch.distributed.launch train.py --x").arguments == ("--local-rank=0", "--x")
    assert started("python -m torch.distributed.launch --use_env train.py --x").arguments == ("--x",)
    assert started("srun -n 4 python train.py").environment["SLURM_NTASKS"] == "4"


def test_a_number_of_processes_that_is_not_known_is_assumed(tree: Path) -> None:
    assert "one was assumed" in started("torchrun --nproc-per-node=gpu train.py").assumptions[0]
    assert started("torchrun --nproc-per-node=gpu train.py", 2).assumptions == ()


FSDP = """\
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_use_orig_params: true, other: 1}
mixed_precision: bf16
num_machines: 2
num_processes: 8
"""
ZERO = """\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, zero3_init_flag: true, gradient_clipping: 1.0}
mixed_precision: no
num_processes: 4
"""


def test_what_accelerate_reads_of_its_file(tree: Path) -> None:
    Path("a.yaml").write_text(FSDP)
    found = started("accelerate launch --config_file a.yaml train.py")
    assert (found.nodes, found.ranks_per_node, found.environment["WORLD_SIZE"]) == (2, 4, "8")
    assert found.environment["ACCELERATE_USE_FSDP"] == found.environment["FSDP_USE_ORIG_PARAMS"] == "true"
    assert found.environment["FSDP_SHARDING_STRATEGY"] == "FULL_SHARD"
    assert "OTHER" not in found.environment
    assert found.environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    Path("z.yaml").write_text(ZERO)
    found = started("accelerate launch --config_file z.yaml --num_processes 2 --mixed_precision fp16 train.py")
    assert (found.nodes, found.ranks_per_node) == (1, 2)
    assert found.environment["ACCELERATE_MIXED_PRECISION"] == "fp16"
    assert found.environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert found.environment["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == "true"
    assert found.environment["ACCELERATE_GRADIENT_CLIPPING"] == "1.0"


@pytest.mark.parametrize(("text", "words"), [("- 1\n", "no settings"), ("a: [\n", "no YAML"), (None, "a.yaml")])
def test_files_that_accelerate_cannot_read(text: str | None, words: str, tree: Path) -> None:
    if text is not None:
        Path("a.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        started("accelerate launch --config_file a.yaml train.py")
