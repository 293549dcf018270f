"""litgpt's and ms-swift's settings, from files and from their command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from argument_files import place, read
from programs_as_text import is_unknown, values

from preflight.frameworks import commands
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Launch, Reading, Word, word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Origin, Span, Value

LITGPT = """\
checkpoint_dir: checkpoints/microsoft/phi-2
precision: bf16-true
quantize: bnb.nf4-dq
devices: 1
lora_r: 32
lora_dropout: 0.1
lora_query: true
lora_value: true
lora_projection: true
data:
  class_path: litgpt.data.Alpaca
  init_args:
    num_workers: 4
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
optimizer:
  class_path: torch.optim.AdamW
"""


def command(kind: str, root: Path, *texts: str, **environment: str) -> Reading:
    """A command's reading; its words as a script has them."""
    (root / "run.sh").write_text("")
    project = Project(root, Settings())
    launch = Launch(environment={name: Const(text) for name, text in environment.items()})
    words = (Word("", Const(kind)), *(word(text, Origin("run.sh", Span(0, 1))) for text in texts))
    return commands.read(project.source("run.sh"), Call("run.sh", words, {}, launch), project)


def test_litgpts_file(tmp_path: Path) -> None:
    reading = read("x.yaml", LITGPT, tmp_path)
    found = values(reading)
    expected = {
        "model.name": "microsoft/phi-2", "train.batch_size": 2, "train.grad_accum": 4, "train.seq_len": 512,
        "train.precision": "bf16", "train.quantization.type": "nf4", "train.quantization.double_quant": True,
        "train.quantization.compute_dtype": "bf16", "train.optimizer": "paged-adamw", "train.loss": "chunked-output",
        "train.peft.targets": ("q_proj", "v_proj", "dense"), "train.peft.r": 32, "data.workers": 4,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert place(reading, "train.batch_size", tmp_path) == "2"
    assert place(reading, "train.quantization.type", tmp_path) == "bnb.nf4-dq"


def test_litgpt_on_several_devices_shards_and_checkpoints(tmp_path: Path) -> None:
    text = LITGPT.replace("devices: 1", "devices: 4").replace("quantize: bnb.nf4-dq\n", "")
    found = values(read("x.yaml", text, tmp_path))
    assert (found["parallel.strategy"], found["parallel.ranks_per_node"]) == ("fsdp", 4)
    assert (found["train.gradient_checkpointing"], found["train.grad_accum"]) == (True, 1)
    assert found["train.optimizer"] == "adamw"


def test_litgpts_flags(tmp_path: Path) -> None:
    reading = command(
        "litgpt", tmp_path, "method=lora", "checkpoint_dir=EleutherAI/pythia-1b", "--quantize", "bnb.nf4",
        "--precision", "bf16-true", "--train.micro_batch_size", "4", "--train.max_seq_length=256",
    )  # fmt: skip
    found = values(reading)
    assert (found["model.name"], found["train.batch_size"], found["train.seq_len"]) == ("EleutherAI/pythia-1b", 4, 256)
    assert found["train.peft.targets"] == ("query_key_value",)
    assert reading.trains


def test_what_litgpt_leaves_to_its_release_or_the_data_is_unknown(tmp_path: Path) -> None:
    found = values(command("litgpt", tmp_path, "method=full", "checkpoint_dir=org/model"))
    assert is_unknown(found["train.batch_size"])
    assert is_unknown(found["train.seq_len"])
    assert "train.peft.method" not in found


SWIFT = ("--model", "Qwen/Qwen2.5-7B", "--train_type", "lora", "--torch_dtype", "bfloat16", "--max_length", "2048",
         "--lora_rank", "16", "--target_modules", "q_proj", "v_proj", "--attn_impl", "flash_attn",
         "--use_liger_kernel", "true", "--deepspeed", "zero3_offload")  # fmt: skip


def test_swifts_flags(tmp_path: Path) -> None:
    found = values(command("swift", tmp_path, "method=sft", *SWIFT))
    expected = {
        "model.name": "Qwen/Qwen2.5-7B", "train.batch_size": 1, "train.grad_accum": 16, "train.seq_len": 2048,
        "train.precision": "bf16-mixed", "train.weights_dtype": "bf16", "train.peft.r": 16,
        "train.peft.targets": ("q_proj", "v_proj"), "train.attention": "flash", "train.loss": "fused",
        "train.gradient_checkpointing": True, "parallel.strategy": "zero3", "parallel.offload": "parameters",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        (("--quant_bits", "4", "--quant_method", "bnb"), "train.quantization.type", "nf4"),
        (("--quant_bits", "4", "--quant_method", "hqq"), "train.quantization.type", None),
        (("--per_device_train_batch_size", "8", "nproc_per_node=2"), "train.grad_accum", 1),
        (("--rlhf_type", "dpo", "--per_device_train_batch_size", "2"), "train.batch_size", 2),
        (("--rlhf_type", "dpo"), "train.sequences_per_sample", 2),
        (("--packing", "true"), "train.sequences", "packed"),
        (("--optim", "galore_adamw_layerwise"), "train.optimizer_in_backward", True),
        (("--split_dataset_ratio", "0.01"), "validation.batch_size", 1),
    ],
)
def test_more_of_swifts_flags(more: tuple[str, ...], field: str, value: Value, tmp_path: Path) -> None:
    found = values(command("swift", tmp_path, "method=sft", *SWIFT, *more))
    if field == "validation.batch_size":
        more = (*more, "--eval_strategy", "steps")
        found = values(command("swift", tmp_path, "method=sft", *SWIFT, *more))
    assert is_unknown(found[field]) if value is None else found[field] == value


def test_swift_without_a_type_or_a_length(tmp_path: Path) -> None:
    found = values(command("swift", tmp_path, "method=sft", "--model", "Qwen/Qwen3-8B"))
    assert is_unknown(found["train.precision"])
    assert is_unknown(found["train.seq_len"])
    assert found["train.peft.targets"] == "all-linear"


def test_swifts_file(tmp_path: Path) -> None:
    text = "model: Qwen/Qwen3-8B\ntrain_type: full\ndataset: x\ntorch_dtype: bfloat16\nmax_length: 1024\n"
    reading = read("x.yaml", text, tmp_path)
    assert reading.dialect == "swift"
    assert "train.peft.method" not in values(reading)
    assert place(reading, "train.seq_len", tmp_path) == "1024"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("llamafactory-cli", ("train", "--model_name_or_path", "gpt2", "--deepspeed", "ds.json", "--bf16")),
        ("trl", ("sft", "--model_name_or_path", "gpt2", "--deepspeed", "ds.json")),
        ("swift", ("sft", "--model", "gpt2", "--deepspeed", "ds.json")),
    ],
)
def test_a_file_behind_an_option_is_not_the_file_of_settings(kind: str, words: tuple[str, ...]) -> None:
    found = commands.started(kind, [word(text) for text in words], Launch(), None)
    assert found is not None
    assert found.file is None


@pytest.mark.parametrize("words", [("x.yaml", "--deepspeed", "ds.json"), ("--deepspeed", "ds.json", "x.yaml")])
def test_the_file_of_settings_among_other_files(words: tuple[str, ...]) -> None:
    found = commands.started("axolotl", [word(text) for text in ("train", *words)], Launch(), None)
    assert found is not None
    assert found.file == word("x.yaml")
