"""Trainers' commands in job scripts: each a launch of its own, with places in the script, and fixes that edit them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import GIB, fake_engine, preflight

from preflight.machines.gpus import find_gpu
from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Unknown, Value, evaluate

Write = Callable[[dict[str, str]], Path]

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:a100:{gpus}\n#SBATCH --time=1:00:00\n"
TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
tokenizer:
  max_seq_len: 512
batch_size: 16  # per device
gradient_accumulation_steps: 2
optimizer:
  _component_: torch.optim.AdamW
dtype: bf16
"""
AXOLOTL = "base_model: x/y\ndatasets: [{path: d}]\nsequence_len: 512\nmicro_batch_size: 4\n"


def studies(root: Path, *paths: str) -> tuple[Study, ...]:
    return build(paths, Project(root, Settings()))[0]


def fields(study: Study) -> dict[str, Value]:
    return {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}


def script(line: str, gpus: int = 1) -> str:
    return HEAD.format(gpus=gpus) + line + "\n"


SEEN = "CUDA_VISIBLE_DEVICES=0,3 "
FACTORY = "llamafactory-cli train --model_name_or_path x/y --stage sft --cutoff_len 128 --bf16"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (SEEN + FACTORY, {"parallel.ranks_per_node": 2, "parallel.gpus_per_node": 2, "parallel.strategy": "ddp"}),
        ("export CUDA_VISIBLE_DEVICES=0,1,2\nFORCE_TORCHRUN=1 NNODES=2 " + FACTORY,
         {"parallel.ranks_per_node": 3, "parallel.nodes": 2}),
        (SEEN + "NPROC_PER_NODE=1 " + FACTORY, {"parallel.ranks_per_node": 1}),
        ("CUDA_VISIBLE_DEVICES=1 " + FACTORY, {"parallel.ranks_per_node": 1, "parallel.gpus_per_node": 1}),
        (FACTORY, {"parallel.ranks_per_node": None, "parallel.gpus_per_node": None}),
        # one process sees two GPUs: it spreads the model, or copies it
        (SEEN + "swift sft --model x/y --train_type lora --torch_dtype float16",
         {"parallel.gpus_per_node": 2, "parallel.strategy": None}),
        (SEEN + "axolotl train x.yaml", {"parallel.ranks_per_node": 2, "parallel.strategy": "ddp"}),
        (SEEN + "python -m axolotl.cli.train x.yaml", {"parallel.ranks_per_node": 1, "parallel.strategy": None}),
    ],
)  # fmt: skip
def test_processes_on_the_gpus_that_a_command_sees(lines: str, expected: dict[str, Value], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(AXOLOTL)
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{lines}\n")
    (study,) = studies(tmp_path, "run.sh")
    found = {name: None if isinstance(value, Unknown) else value for name, value in fields(study).items()}
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", {"train.precision": "bf16", "train.weights_dtype": "bf16", "train.seq_len": None}),
        ("--fp16", {"train.precision": "fp16-mixed", "train.seq_len": None}),
        ("--finetuning_type full", {"train.precision": "fp32", "train.weights_dtype": None}),
        ("--pure_bf16 --cutoff_len 99", {"train.precision": "bf16", "train.seq_len": 99}),
    ],
)
def test_the_types_of_llamafactory(given: str, expected: dict[str, Value], tmp_path: Path) -> None:
    line = f"llamafactory-cli train --model_name_or_path x/y --stage sft --template t {given}"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (study,) = studies(tmp_path, "run.sh")
    found = {name: None if isinstance(value, Unknown) else value for name, value in fields(study).items()}
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("swift sft --model Qwen/Qwen3-8B --train_type full --max_length 256 --torch_dtype bfloat16",
         {"model.name": "Qwen/Qwen3-8B", "train.seq_len": 256, "train.weights_dtype": "bf16"}),
        ("litgpt finetune_lora checkpoints/org/m --train.micro_batch_size 2 --quantize bnb.nf4",
         {"model.name": "org/m", "train.batch_size": 2, "train.quantization.type": "nf4"}),
        ("litgpt finetune full --checkpoint_dir=org/m --train.micro_batch_size 2",
         {"model.name": "org/m", "train.peft.method": None}),
        ("llamafactory-cli train --model_name_or_path x/y --stage sft --cutoff_len 128 --lora_rank 4 --bf16 true",
         {"train.seq_len": 128, "train.peft.r": 4, "train.precision": "bf16-mixed"}),
        ("trl sft --model_name_or_path x/y --max_length 64 --use_peft --lora_r 8 --use_liger_kernel",
         {"train.seq_len": 64, "train.peft.r": 8, "train.loss": "fused"}),
        ("trl dpo --model_name_or_path x/y --per_device_train_batch_size 2", {"train.batch_size": 4}),
        ("srun tune run full_finetune_single_device --config llama3_2/1B_full batch_size=4",
         {"train.batch_size": 4, "parallel.strategy": "none"}),
    ],
)  # fmt: skip
def test_a_command_alone_is_a_study(line: str, expected: dict[str, Value], tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script(line))
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "line", ["swift infer --model x", "litgpt download x", "tune download x", "axolotl preprocess x.yml", "trl env"]
)
def test_what_trains_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    assert not studies(tmp_path, "run.sh")


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        ("--accelerate_config a.yaml --num_processes 4", "fsdp"),
        ("--accelerate_config=a.yaml", "fsdp"),
        # one of TRL's own names, which are not read
        ("--accelerate_config zero3", None),
        ("--num_processes 4", "ddp"),
    ],
)
def test_trl_starts_its_scripts_with_accelerate(words: str, strategy: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 4\n"
        "fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: FULL_SHARD}\n"
    )
    (tmp_path / "run.sh").write_text(script(f"trl sft {words} --model_name_or_path x/y --max_length 64", gpus=4))
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)
    assert (found["model.name"], found["train.seq_len"]) == ("x/y", 64)
    assert study.launch.launcher == "accelerate"
    if strategy is None:
        assert isinstance(found["parallel.strategy"], Unknown)
    else:
        assert (found["parallel.strategy"], found["parallel.ranks_per_node"]) == (strategy, 4)


def test_each_command_of_a_script_is_a_launch(tmp_path: Path) -> None:
    lines = "\n".join(f"swift sft --model x/{name} --max_length 64" for name in ("a", "b"))
    (tmp_path / "run.sh").write_text(script(lines))
    found = studies(tmp_path, "run.sh")
    assert [fields(study)["model.name"] for study in found] == ["x/a", "x/b"]


def test_a_loop_over_lengths_is_followed(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script("for n in 64 128; do\n  swift sft --model x/y --max_length $n\ndone"))
    assert [fields(study)["train.seq_len"] for study in studies(tmp_path, "run.sh")] == [64, 128]


def test_the_script_is_found_from_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        script("tune run --nproc_per_node 4 full_finetune_distributed --config t.yaml batch_size=2", gpus=4)
    )
    (tmp_path / "t.yaml").write_text(TORCHTUNE)
    (study,) = studies(tmp_path, "t.yaml")
    found = fields(study)
    assert study.paths == ("run.sh", "t.yaml")
    assert (found["train.batch_size"], found["parallel.ranks_per_node"]) == (2, 4)
    assert (found["parallel.strategy"], found["train.seq_len"]) == ("fsdp", 512)


@pytest.mark.parametrize(
    ("line", "strategy", "ranks"),
    [
        ("axolotl train a.yml", "ddp", 4),
        ("accelerate launch --num_processes 2 -m axolotl.cli.train a.yml", "ddp", 2),
        ("accelerate launch --use_fsdp --num_processes 2 -m axolotl.cli.train a.yml", "fsdp", 2),
        ("torchrun --nproc_per_node 2 /opt/ms-swift/swift/cli/sft.py --model x/y --deepspeed zero2", "zero2", 2),
        ("NPROC_PER_NODE=2 swift sft --model x/y --deepspeed zero3", "zero3", 2),
    ],
)
def test_how_many_processes(line: str, strategy: str, ranks: int, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script(line, gpus=4))
    (tmp_path / "a.yml").write_text(AXOLOTL)
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)
    assert (found["parallel.strategy"], found["parallel.ranks_per_node"]) == (strategy, ranks)


PARALLEL = """
import torch
model = torch.nn.Linear(2, 2)
model = torch.nn.DataParallel(model)
for batch in loader:
    model(batch).sum().backward()
"""


@pytest.mark.parametrize(("gpus", "known"), [(1, True), (4, False)])
def test_one_process_on_several_gpus_is_unknown(gpus: int, known: bool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script("python train.py", gpus))
    (tmp_path / "train.py").write_text(PARALLEL)
    (study,) = studies(tmp_path, "run.sh")
    assert isinstance(fields(study)["parallel.strategy"], Unknown) is not known


def test_a_stated_mapping_of_options_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script("tune run full_finetune_distributed --config t.yaml"))
    (tmp_path / "t.yaml").write_text(TORCHTUNE + "fsdp_reshard_after_forward: false\n")
    options: dict[str, Value] = {"parallel.options": {"fsdp_version": 1}}
    (study,) = build(("run.sh",), Project(tmp_path, Settings()), options)[0]
    found = fields(study)
    assert "parallel.options.fsdp_version" not in found
    assert found["parallel.options.reshard_after_forward"] is False


SWIFT = "swift sft --model x/y --max_length 512 --per_device_train_batch_size 64 --torch_dtype bfloat16 # as ever"
FIXES = {
    "a flag": ({"run.sh": script(SWIFT)}, "run.sh", "--per_device_train_batch_size {} "),
    "an override": (
        {"run.sh": script("tune run r --config t.yaml batch_size=64"), "t.yaml": TORCHTUNE},
        "run.sh", "batch_size={}",
    ),
    "a recipe's file": (
        {"run.sh": script("tune run r --config t.yaml"), "t.yaml": TORCHTUNE.replace("size: 16", "size: 64")},
        "t.yaml", "batch_size: {}  # per device",
    ),
    "axolotl's file": (
        {"run.sh": script("axolotl train a.yml"), "a.yml": AXOLOTL.replace("size: 4", "size: 64")},
        "a.yml", "micro_batch_size: {}\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXES)
def test_a_fix_edits_what_counts(
    name: str, project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, changed, text = FIXES[name]
    root = project(files)
    fake_engine(monkeypatch)
    preflight(capsys, "check", "run.sh", "--gpu", "RTX 4090", "--fix")
    gpu = find_gpu("RTX 4090")
    assert gpu is not None
    assert text.format((gpu.capacity - GIB) // (512 * 2**20)) in (root / changed).read_text()
    for other in files:
        if other != changed:
            assert (root / other).read_text() == files[other]
