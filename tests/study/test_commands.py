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
        ("trl dpo --model_name_or_path x/y --per_device_train_batch_size 2", 
         {"train.batch_size": 2, "train.sequences_per_sample": 2}),
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
    "line",
    [
        'D=$(dirname "$(readlink -f "$0")")\naxolotl train $D/conf/a.yml',
        'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\naccelerate launch -m axolotl.cli.train "${D}/conf/a.yml"',
    ],
)
def test_a_file_of_settings_beside_the_script(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script(line))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/a.yml").write_text(AXOLOTL)
    (study,) = studies(tmp_path, "run.sh")
    assert fields(study)["train.batch_size"] == 4


@pytest.mark.parametrize("file", ["no.yml", "/data/no.yml", "$D/a.yml"])
def test_without_its_file_of_settings_only_the_words_behind_it_count(file: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script(f"axolotl train {file} --sequence-len 77"))
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)
    assert found["train.seq_len"] == 77
    assert all(isinstance(found[f"train.{name}"], Unknown) for name in ("grad_accum", "optimizer", "precision"))


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


LOADER = """
import argparse, os, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--gpus", default="0")
parser.add_argument("--one", action="store_true")
args = parser.parse_args()
{}
model = torch.nn.Linear(2, 2)
if not args.one:
    model = torch.nn.DataParallel(model)
for batch in DataLoader(data, batch_size=50):
    model(batch).sum().backward()
"""
OWN = LOADER.format('os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus')
BY_ENVIRONMENT = LOADER.format("").replace('action="store_true"', 'type=int, default=os.environ["ONE"]')
SEEN: dict[str, tuple[str, str, object, int, tuple[int, ...]]] = {
    "nothing says how many": ("python train.py", LOADER.format(""), None, 50, (7,)),
    "the environment decides": ("python train.py", BY_ENVIRONMENT, None, 50, (7,)),
    "another flag": ("python train.py --one", LOADER.format(""), 1, 50, ()),
    "one": ("CUDA_VISIBLE_DEVICES=3 python train.py", LOADER.format(""), 1, 50, ()),
    "two before the command": ("CUDA_VISIBLE_DEVICES=0,3 python train.py", LOADER.format(""), 2, 25, (50,)),
    "exported": ("export CUDA_VISIBLE_DEVICES=0,1,2,5\npython train.py", LOADER.format(""), 4, 13, (50,)),
    "set by the program": ("python train.py --gpus 12,13,14,15", OWN, 4, 13, (50,)),
    "set by the program to its default": ("python train.py", OWN, 1, 50, ()),
    "a variable that is not known": ("CUDA_VISIBLE_DEVICES=$1 python train.py", LOADER.format(""), None, 50, (7,)),
    "the request": ("python train.py", LOADER.format(""), 4, 13, (50,)),
}


@pytest.mark.parametrize("case", SEEN)
def test_data_parallel_splits_the_batch_over_the_gpus_that_it_sees(case: str, tmp_path: Path) -> None:
    line, program, gpus, batch, others = SEEN[case]
    head = script(line, 4) if case == "the request" else f"#!/bin/bash\n{line}\n"
    (tmp_path / "run.sh").write_text(head)
    (tmp_path / "train.py").write_text(program)
    (study,) = studies(tmp_path, "run.sh")
    found = {name: None if isinstance(value, Unknown) else value for name, value in fields(study).items()}
    assert (found["parallel.gpus_per_node"], found["train.batch_size"]) == (gpus, batch)
    bounds = study.boxes[0].fields
    assert (bounds["train.batch_size"].others, found["parallel.strategy"]) == (others, "none")
    assert bounds["parallel.strategy"].others == (() if gpus == 1 else ("ddp",))
    assert not {name for name in found if name.startswith("parallel.options.")}


@pytest.mark.parametrize(
    ("size", "wrap", "batch", "others"),
    [
        ("12 * max(1, torch.cuda.device_count())", True, 12, (96,)),  # a full node gives the first all outputs
        ("48 // max(1, torch.cuda.device_count())", True, 48, (1,)),
        ("12 * max(1, torch.cuda.device_count())", False, None, ()),  # one GPU has all of them
        ("12 * lib.gpus()", True, None, ()),
    ],
)
def test_a_batch_for_as_many_gpus_as_there_are(
    size: str, wrap: bool, batch: object, others: tuple[int, ...], tmp_path: Path
) -> None:
    program = LOADER.replace("batch_size=50", f"batch_size={size}").replace(
        "DataParallel(", "DataParallel(" if wrap else "Identity("
    )
    (tmp_path / "train.py").write_text(program.format(""))
    (tmp_path / "run.sh").write_text("#!/bin/bash\npython train.py\n")
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)["train.batch_size"]
    assert (None if isinstance(found, Unknown) else found) == batch
    assert study.boxes[0].fields["train.batch_size"].others == others


def test_data_parallel_with_a_searched_batch_has_no_known_strategy(tmp_path: Path) -> None:
    head = 'parser.add_argument("--size", type=int)\nargs = parser.parse_args()'
    program = LOADER.replace("args = parser.parse_args()", head).replace("batch_size=50", "batch_size=args.size")
    (tmp_path / "train.py").write_text(program.format(""))
    sweep = "program: train.py\nmethod: grid\nparameters:\n  size:\n    values: [16, 32]\n"
    (tmp_path / "sweep.yaml").write_text(sweep)
    (study,) = studies(tmp_path, "sweep.yaml")
    assert isinstance(fields(study)["parallel.strategy"], Unknown)


TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=4)).train()
"""


@pytest.mark.parametrize(
    ("line", "gpus", "strategy"),
    [
        ("python train.py", 1, "none"),
        ("CUDA_VISIBLE_DEVICES=1 python train.py", 1, "none"),
        ("CUDA_VISIBLE_DEVICES=0,1 python train.py", 2, None),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py", 2, "ddp"),
    ],
)
def test_a_trainer_in_one_process_takes_the_gpus_that_it_sees(
    line: str, gpus: int, strategy: str | None, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (tmp_path / "train.py").write_text(TRAINER)
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)
    assert (found["parallel.gpus_per_node"], found["train.batch_size"]) == (gpus, 4)
    assert found["parallel.strategy"] == strategy or (
        strategy is None and isinstance(found["parallel.strategy"], Unknown)
    )


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


SPAWNS = """
import argparse, os, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--gpus", default="0,1")
parser.add_argument("--batch-size", default=256, type=int)
def main():
    args = parser.parse_args()
    SET
    count = torch.cuda.device_count()
    torch.multiprocessing.spawn(worker, nprocs=count, args=(count, args))
def worker(rank, count, args):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    args.batch_size = int(args.batch_size / count)
    for batch in DataLoader(data, batch_size=args.batch_size):
        model(batch).sum().backward()
main()
"""


@pytest.mark.parametrize(
    ("line", "own", "gpus", "batch"),
    [
        ("python train.py", "pass", None, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py", "pass", 4, 64),
        ("python train.py", 'os.environ["CUDA_VISIBLE_DEVICES"] = "4,5"', 2, 128),
        ("#SBATCH --gres=gpu:a100:8\npython train.py", "pass", 8, 32),
        ("#SBATCH --gres=gpu:8\nexport CUDA_VISIBLE_DEVICES=0,1\npython train.py", "pass", 8, 128),
        ("python train.py --gpus 4,5,6,7", 'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus', 4, 64),
    ],
)
def test_processes_that_the_program_starts_itself(
    line: str, own: str, gpus: int | None, batch: int | None, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (tmp_path / "train.py").write_text(SPAWNS.replace("SET", own))
    (study,) = studies(tmp_path, "run.sh")
    found = {name: None if isinstance(value, Unknown) else value for name, value in fields(study).items()}
    assert (found["parallel.gpus_per_node"], found["train.batch_size"]) == (gpus, batch)
    assert found["parallel.strategy"] == "ddp"


RANKED = """
import argparse, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("FLAG", type=int, default=-1)
args = parser.parse_args()
count = torch.cuda.device_count() if args.local_rank == -1 else 1
for batch in DataLoader(data, batch_size=16 * count):
    model(batch).sum().backward()
"""


@pytest.mark.parametrize(
    ("launch", "batch"),
    [
        ("python -m torch.distributed.launch --nproc_per_node=4", 16),
        ("python -m torch.distributed.launch --nproc_per_node=4 --use_env", 64),
        ("deepspeed --num_gpus 4", 16),
        ("deepspeed --num_gpus 4 --no_local_rank", 64),
        ("torchrun --nproc_per_node=4", 64),
        ("python", 64),
    ],
)
def test_a_launcher_may_say_the_rank_as_an_argument(launch: str, batch: int, tmp_path: Path) -> None:
    flags = ["--local_rank"] if launch.startswith("deepspeed") else ["--local_rank", "--local-rank"]
    for flag in flags:
        (tmp_path / "run.sh").write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:4\n{launch} train.py\n")
        (tmp_path / "train.py").write_text(RANKED.replace("FLAG", flag))
        (study,) = studies(tmp_path, "run.sh")
        assert fields(study)["train.batch_size"] == batch


def test_gpus_that_a_launched_process_sees_are_not_those_of_the_launch(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\naccelerate launch train.py\n")
    own = 'import os\nfrom accelerate import Accelerator\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'
    (tmp_path / "train.py").write_text(own + "accelerator = Accelerator()\nfor x in y:\n    accelerator.backward(x)\n")
    (study,) = studies(tmp_path, "run.sh")
    assert isinstance(fields(study)["parallel.gpus_per_node"], Unknown)


LIGHTNING = """
import lightning
from torch.utils.data import DataLoader
trainer = lightning.Trainer(devices=DEVICES, accelerator="gpu")
trainer.fit(model, DataLoader(data, batch_size=8))
"""


@pytest.mark.parametrize(
    ("devices", "line", "gpus"),
    [
        ("-1", "python train.py", None),
        ('"auto"', "python train.py", None),
        ("2", "CUDA_VISIBLE_DEVICES=0,1,2 python train.py", 2),
        ("-1", "CUDA_VISIBLE_DEVICES=0,1,2 python train.py", 3),
        ('"auto"', "CUDA_VISIBLE_DEVICES=7 python train.py", 1),
    ],
)
def test_all_devices_are_those_that_the_process_sees(devices: str, line: str, gpus: int | None, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (tmp_path / "train.py").write_text(LIGHTNING.replace("DEVICES", devices))
    (study,) = studies(tmp_path, "run.sh")
    found = fields(study)["parallel.gpus_per_node"]
    assert (None if isinstance(found, Unknown) else found) == gpus


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("$HOME/miniconda3/envs/train/bin/python train.py", True),
        ("${1}/bin/python3.10 -u train.py", True),
        ("$VENV/bin/torchrun --nproc_per_node 2 train.py", True),
        ("$TOOLS/python train.py", False),  # a folder of that name, or a script
        ("$PYTHON train.py", False),
    ],
)
def test_an_interpreter_in_a_folder_that_is_not_known(line: str, seen: bool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(script(line))
    (tmp_path / "train.py").write_text(LOADER.format(""))
    found = studies(tmp_path, "run.sh")
    assert any("train.py" in study.paths for study in found) is seen
