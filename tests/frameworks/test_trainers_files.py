"""LLaMA-Factory's, axolotl's and TRL's files: what moves memory, each value at its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from argument_files import place, read
from hypothesis import given, settings
from hypothesis import strategies as st
from programs_as_text import facts, is_unknown, values

from preflight.frameworks.arguments import arguments_of
from preflight.frameworks.table import kinds
from preflight.frameworks.table import read as read_table
from preflight.vocabulary.reading import word
from preflight.vocabulary.values import Const, Expr, Origin, Ref, Span, Unknown, Value

AXOLOTL = """\
base_model: meta-llama/Llama-3.2-1B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
datasets:
  - path: data.jsonl
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
flash_attention: true
gradient_checkpointing: true
"""
FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
cutoff_len: 4096
per_device_train_batch_size: 2
bf16: true
"""
UNKNOWN = object()
TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: x/y
per_device_train_batch_size: 2
output_dir: out
max_length: 2048
"""


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("", "train.weights_dtype", "bf16"),
        ("", "train.quantization.double_quant", True),
        ("", "train.quantization.compute_dtype", "bf16"),
        ("", "train.sequences", "packed"),
        ("plugins:\n  - axolotl.integrations.liger.LigerPlugin\n", "train.loss", None),
        ("liger_fused_linear_cross_entropy: true\n", "train.loss", "fused"),
        ("liger_fused_linear_cross_entropy: true\n", "train.fused_kernels", ("liger",)),
        ("liger_rms_norm: true\nliger_rope: false\n", "train.fused_kernels", ("liger", "norm")),
        ("plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n", "train.loss", "fused"),
        ("activation_offloading: true\n", "train.activation_offload", True),
        ("sdp_attention: true\n", "train.attention", "sdpa"),
        ("torch_compile: true\n", "train.compile", True),
        ("fsdp_config:\n  reshard_after_forward: false\nfsdp_version: 2\n", "parallel.strategy", "fsdp"),
        ("fsdp_config:\n  reshard_after_forward: false\n", "parallel.options.reshard_after_forward", False),
        (
            "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: true\n",
            "parallel.offload",
            "parameters",
        ),
        ("gradient_checkpointing: offload\n", "train.activation_offload", True),
        ("peft_use_dora: true\n", "train.peft.method", "dora"),
        ("batch_size: 16\n", "train.grad_accum", 8),
        ("", "train.reentrant", True),
        ("", "train.outputs_cast", True),
        ("gradient_checkpointing_kwargs:\n  use_reentrant: false\n", "train.reentrant", False),
        ("batch_size: 16\ngradient_accumulation_steps: 3\n", "train.grad_accum", 3),
    ],
)
def test_axolotl(more: str, field: str, value: Value, tmp_path: Path) -> None:
    base = AXOLOTL.replace("gradient_checkpointing: true\n", "") if "gradient_checkpointing" in more else AXOLOTL
    found = values(read("x.yml", base + more, tmp_path))
    assert found.get(field) == value


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("rl: dpo\n", (2, 2, 0)),
        ("rl: ipo\nrl_adapter_ref_model: true\n", (2, 2, 1)),
        ("rl: dpo\nadapter:\n", (2, 2, 1)),
        ("rl: simpo\n", (2, 2, None)),
    ],
)
def test_axolotls_training_on_pairs(more: str, found: tuple[int | None, ...], tmp_path: Path) -> None:
    base = AXOLOTL.replace("adapter: qlora\n", "") if "adapter:" in more else AXOLOTL
    read_ = values(read("x.yml", base + more, tmp_path))
    fields = ("train.batch_size", "train.sequences_per_sample", "train.copies.reference")
    assert tuple(read_.get(name) for name in fields) == found


@pytest.mark.parametrize("rl", ["grpo", "kto"])
def test_axolotls_training_on_preferences_is_not_modelled(rl: str, tmp_path: Path) -> None:
    assert is_unknown(values(read("x.yml", f"{AXOLOTL}rl: {rl}\n", tmp_path))["train.batch_size"])


def test_axolotl_without_preferences_has_its_batch(tmp_path: Path) -> None:
    assert values(read("x.yml", f"{AXOLOTL}rl:\n", tmp_path))["train.batch_size"] == 2


def test_axolotls_places(tmp_path: Path) -> None:
    reading = read("x.yml", AXOLOTL + "liger_fused_linear_cross_entropy: true\n", tmp_path)
    assert place(reading, "train.loss", tmp_path) == "true"
    assert place(reading, "train.seq_len", tmp_path) == "4096"


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("", "train.weights_dtype", "bf16"),
        ("", "train.peft.targets", "all-linear"),
        ("finetuning_type: full\n", "train.weights_dtype", None),
        ("pure_bf16: true\n", "train.precision", "bf16"),
        ("enable_liger_kernel: true\n", "train.loss", "fused"),
        ("enable_liger_kernel: true\n", "train.fused_kernels", ("liger", "norm", "rope", "mlp")),
        ("flash_attn: fa2\n", "train.attention", "flash"),
        ("flash_attn: auto\n", "train.attention", None),
        ("use_unsloth_gc: true\n", "train.activation_offload", True),
        ("quantization_bit: 4\n", "train.quantization.double_quant", True),
        ("quantization_bit: 4\n", "train.quantization.compute_dtype", "bf16"),
        ("use_galore: true\ngalore_layerwise: true\n", "train.optimizer_in_backward", True),
        ("use_galore: true\n", "train.optimizer", "galore-adamw"),
        ("use_muon: true\n", "train.optimizer", "muon"),
        ("use_adam_mini: true\n", "train.optimizer", "adam-mini"),
        ("use_muon: false\n", "train.optimizer", "adamw"),
        ("stage: pt\n", "train.sequences", "packed"),
        ("neat_packing: true\n", "train.sequences", "packed"),
        ("stage: dpo\nfinetuning_type: full\n", "train.copies.reference", 1),
        ("stage: dpo\nfinetuning_type: full\npref_loss: simpo\n", "train.copies.reference", None),
        ("stage: dpo\n", "train.batch_size", 2),
        ("stage: dpo\n", "train.sequences_per_sample", 2),
        ("stage: rm\n", "train.sequences_per_sample", 2),
        ("stage: orpo\n", "train.sequences_per_sample", 2),
        ("do_train: true\ndo_eval: true\n", "train.batch_size", 2),
        ("stage: kto\n", "train.sequences_per_sample", None),
        ("optim: lomo\n", "train.optimizer_in_backward", True),
        ("deepspeed:\n  zero_optimization:\n    stage: 2\n", "parallel.strategy", "zero2"),
    ],
)
def test_llamafactory(more: str, field: str, value: Value, tmp_path: Path) -> None:
    keys = {line.partition(":")[0] for line in more.splitlines()}
    base = "".join(line + "\n" for line in FACTORY.splitlines() if line.partition(":")[0] not in keys)
    assert values(read("x.yaml", base + more, tmp_path)).get(field) == value


@pytest.mark.parametrize("more", ["do_predict: true\n", "do_train: false\ndo_eval: true\n"])
def test_a_llamafactory_run_that_only_evaluates_trains_no_model(more: str, tmp_path: Path) -> None:
    found = values(read("x.yaml", FACTORY + more, tmp_path))
    assert is_unknown(found["model.name"])


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_type_of_the_checkpoint_is_unknown(key: str, tmp_path: Path) -> None:
    text = f"model_name_or_path: gpt2\nper_device_train_batch_size: 2\nbf16: true\n{key}: auto\n"
    assert is_unknown(values(read("x.yaml", text, tmp_path))["train.weights_dtype"])


@pytest.mark.parametrize("more", ["use_kt: true\n", "use_mca: true\n", "use_mca: true\ndeepspeed: ds.json\n"])
def test_backends_that_are_not_modelled_are_unknown(more: str, tmp_path: Path) -> None:
    assert is_unknown(values(read("x.yaml", FACTORY + more, tmp_path))["parallel.strategy"])


@pytest.mark.parametrize("more", ["quantization_bit: 2\n", "quantization_bit: 4\nquantization_method: hqq\n"])
def test_quantisation_that_is_not_modelled_is_unknown(more: str, tmp_path: Path) -> None:
    assert is_unknown(values(read("x.yaml", FACTORY + more, tmp_path))["train.quantization.type"])


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("torch_dtype: bfloat16\n", "train.weights_dtype", "bf16"),
        ("attn_implementation: flash_attention_2\n", "train.attention", "flash"),
        ("use_liger_kernel: true\n", "train.loss", "fused"),
        ("activation_offloading: true\n", "train.activation_offload", True),
        ("num_generations: 4\nmax_prompt_length: 100\nmax_completion_length: 200\n", "train.seq_len", 300),
        ("deepspeed:\n  zero_optimization: {stage: 3}\n", "parallel.strategy", "zero3"),
        ("fsdp: full_shard\nfsdp_config: {version: 2}\n", "parallel.options.fsdp_version", 2),
    ],
)
def test_trl(more: str, field: str, value: Value, tmp_path: Path) -> None:
    assert values(read("x.yaml", TRL + more, tmp_path)).get(field) == value


def test_nested_settings_have_their_own_places(tmp_path: Path) -> None:
    more = "fsdp: full_shard\nfsdp_config: {version: 1, backward_prefetch: backward_post}\n"
    reading = read("x.yaml", TRL + more, tmp_path)
    assert place(reading, "parallel.options.backward_prefetch", tmp_path) == "backward_post"
    more = "deepspeed:\n  zero_optimization:\n    stage: 3\n    sub_group_size: 1000\n"
    reading = read("x.yaml", TRL + more, tmp_path)
    assert place(reading, "parallel.options.sub_group_size", tmp_path) == "1000"


def test_a_file_of_deepspeeds_that_is_not_there(tmp_path: Path) -> None:
    text = TRL + "deepspeed: /home/somebody/zero3.json\n"
    assert is_unknown(values(read("x.yaml", text, tmp_path))["parallel.strategy"])
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    assert "parallel.strategy" not in values(read("x.yaml", TRL + "deepspeed: ds.json\n", tmp_path))


def test_a_trainer_that_looks_for_a_batch_that_fits(tmp_path: Path) -> None:
    assert facts(read("x.yaml", TRL + "auto_find_batch_size: true\n", tmp_path))["handles_oom"] is True


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    words = tuple(word(text, Origin("run.sh", Span(0, 1))) for text in
                  ("--per-device-train-batch-size", "8", "--max_length=64", "--use_liger_kernel"))  # fmt: skip
    found = values(read("x.yaml", TRL, tmp_path, words))
    assert (found["train.batch_size"], found["train.seq_len"], found["train.loss"]) == (8, 64, "fused")


KINDS = kinds()
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**40), st.floats(allow_nan=True), st.just(Unknown("a variable")),
    st.sampled_from(("", "auto", "lora", "full", "zero3", "bf16", "2", "a b", "x/y", "torch.optim.AdamW",
                     "FULL_SHARD", "torchtune.models.llama3.lora_llama3_8b", "deepspeed_stage_3_offload")),
)  # fmt: skip
NAMES = st.sampled_from((
    "model", "optimizer", "loss", "train", "trainer", "fsdp", "fsdp_config", "deepspeed", "plugins", "stage", "devices",
    "quantize", "precision", "micro_batch_size", "global_batch_size", "per_device_train_batch_size", "bf16", "optim",
    "gradient_checkpointing", "zero_optimization", "_component_", "class_path", "num_processes", "num_machines",
    "distributed_type", "version", "sharding_strategy", "val_set_size", "val_size", "quantization_bit", "max_length",
    "lora_target", "target_modules", "liger_kernel_config", "checkpoint_dir", "model_name_or_path", "batch_size",
))  # fmt: skip
VALUES: st.SearchStrategy[Value] = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.dictionaries(NAMES, inner, max_size=4))
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(top=st.dictionaries(NAMES, VALUES, max_size=12), words=st.dictionaries(NAMES, LEAVES, max_size=3))
def test_no_shape_of_values_breaks_a_reader(kind: str, top: dict[str, Value], words: dict[str, Value]) -> None:
    said: dict[str, Expr] = {name: Const(value) for name, value in words.items()}
    read_table(kind, arguments_of(None, top, said | ({"batch_size": Ref("an axis")} if words else {})))


@pytest.mark.parametrize(
    ("more", "method"),
    [
        ("", None),
        ("lora_r: 16\n", UNKNOWN),
        ("lora_r: 16\nuse_peft: true\n", "lora"),
        ("lora_r: 16\nuse_peft: false\n", None),
    ],
)
def test_settings_of_lora_without_a_switch(more: str, method: object, tmp_path: Path) -> None:
    """`peft_enabled: true` of a script of its own may switch the adapters on."""
    found = values(read("x.yaml", TRL.replace("use_peft: true\n", "") + more, tmp_path)).get("train.peft.method")
    assert (UNKNOWN if isinstance(found, Unknown) else found) == method
