"""Launch commands taken apart: the program, its words, and how many processes there are."""

from __future__ import annotations

import shlex

import pytest

from preflight.frameworks.launchers import LaunchCommand, take_apart, text
from preflight.vocabulary.reading import Word, word
from preflight.vocabulary.values import Const, Expr, Op, Ref, Unknown, Value, evaluate


def split(command: str) -> LaunchCommand:
    return take_apart([word(part) for part in shlex.split(command)])


def value(expr: Expr | None) -> Value:
    return None if expr is None else evaluate(expr)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "echo train.py",
        "ls -l",
        "python",
        "python -c 'import train'",
        "A=1",
        "nvidia-smi",
        "torchrun",
        "conda activate x",
    ],
)
def test_no_program(command: str) -> None:
    assert split(command).kind == "none"


@pytest.mark.parametrize(
    ("command", "kind", "name", "words"),
    [
        ("python train.py --a 1", "program", "train.py", ["--a", "1"]),
        ("/opt/bin/python3.11 -u -X dev train.py a=1", "program", "train.py", ["a=1"]),
        ("python -m pkg.train -b 2", "module", "pkg.train", ["-b", "2"]),
        ("./train.py x", "program", "./train.py", ["x"]),
        ("bash -e run.sh a", "script", "run.sh", ["a"]),
        ("timeout 5m nice -n 10 python train.py", "program", "train.py", []),
        ("env -u X A=1 python train.py", "program", "train.py", []),
        ("conda run -n env --no-capture-output python train.py", "program", "train.py", []),
        ("uv run --with torch train.py --lr 1", "program", "train.py", ["--lr", "1"]),
        ("torchrun --standalone --nproc_per_node 2 -m pkg.train x", "module", "pkg.train", ["x"]),
        ("torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint=h:1 train.py --nnodes 9", "program", "train.py",
         ["--nnodes", "9"]),
        ("accelerate launch --config_file a.yaml --mixed_precision=bf16 train.py", "program", "train.py", []),
        ("deepspeed --include localhost:0,1 train.py --deepspeed ds.json", "program", "train.py",
         ["--deepspeed", "ds.json"]),
    ],
)  # fmt: skip
def test_the_program_and_its_words(command: str, kind: str, name: str, words: list[str]) -> None:
    found = split(command)
    assert (found.kind, found.name, [text(one) for one in found.words]) == (kind, name, words)


@pytest.mark.parametrize(
    ("command", "nodes", "per_node", "total"),
    [
        ("python train.py", None, None, None),
        ("torchrun train.py", None, 1, None),
        ("torchrun --nnodes=2 --nproc-per-node=8 train.py", 2, 8, None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py", 4, 8, None),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py", 2, None, 16),
        ("accelerate launch --multi_gpu train.py", None, None, None),
        ("deepspeed --num_gpus=4 --num_nodes 2 train.py", 2, 4, None),
        ("deepspeed --include localhost:4,5,6,7 train.py", 1, 4, None),
        ("deepspeed --include=a:0,1@b:2,3 train.py", 2, 2, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 deepspeed train.py", None, 3, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 accelerate launch train.py", None, 3, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 accelerate launch --config_file a.yaml train.py", None, None, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 accelerate launch --num_processes 2 train.py", None, None, 2),
        ("CUDA_VISIBLE_DEVICES=0,1,2 python train.py", None, None, None),
        ("python -m torch.distributed.launch --nproc_per_node=2 --use_env train.py", None, 2, None),
    ],
)
def test_processes(command: str, nodes: int | None, per_node: int | None, total: int | None) -> None:
    launch = split(command).launch
    assert [value(one) for one in (launch.nodes, launch.ranks_per_node, launch.total_ranks)] == [nodes, per_node, total]


@pytest.mark.parametrize(
    "command",
    ["torchrun --nproc_per_node=gpu train.py", "deepspeed --include worker-0 train.py", "deepspeed -i a@b:0 x.py"],
)
def test_counts_that_the_machine_decides_are_unknown(command: str) -> None:
    assert isinstance(value(split(command).launch.ranks_per_node), Unknown)


def test_values_that_are_expressions_stay_so() -> None:
    words = [word("torchrun"), Word("--nproc_per_node=", Ref("GPUS")), word("train.py"), Word("--bs=", Ref("bs"))]
    found = take_apart(words)
    assert found.launch.ranks_per_node == Op("int", (Ref("GPUS"),), None)
    assert found.words == (Word("--bs=", Ref("bs")),)
    assert take_apart([Word("", Ref("PYTHON")), word("train.py")]).kind == "none"


def test_what_launchers_hand_to_the_program() -> None:
    command = "OMP_NUM_THREADS=8 accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision fp16 train.py"
    environment = split(command).launch.environment
    assert environment == {
        "OMP_NUM_THREADS": Const("8"), "ACCELERATE_USE_DEEPSPEED": Const("true"),
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": Const("3"), "ACCELERATE_MIXED_PRECISION": Const("fp16"),
    }  # fmt: skip
