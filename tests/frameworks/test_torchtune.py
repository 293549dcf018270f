"""torchtune's recipes: models by their builders, losses, optimizers in backward, offloading, sharding."""

from __future__ import annotations

from pathlib import Path

import pytest
from argument_files import place, read
from programs_as_text import is_unknown, values

from preflight.vocabulary.reading import word
from preflight.vocabulary.values import Origin, Span, Unknown, Value

FULL = """\
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /data/llama/tokenizer.model
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: True
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
batch_size: 2
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
  lr: 2e-5
optimizer_in_bwd: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
gradient_accumulation_steps: 1
enable_activation_checkpointing: True
enable_activation_offloading: True
compile: False
dtype: bf16
"""
LORA = """\
model:
  _component_: torchtune.models.qwen2_5.qlora_qwen2_5_7b_instruct
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 16
  lora_dropout: 0.05
tokenizer:
  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
  max_seq_len: null
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
batch_size: 4
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torch.nn.CrossEntropyLoss
dtype: bf16
compile: {model: true, loss: true}
"""


def test_a_full_fine_tuning(tmp_path: Path) -> None:
    reading = read("x.yaml", FULL, tmp_path)
    found = values(reading)
    assert reading.dialect == "torchtune"
    expected = {
        "model.name": "meta-llama/Llama-3.1-8B", "train.batch_size": 2, "train.seq_len": 4096,
        "train.sequences": "packed", "train.precision": "bf16", "train.loss": "chunked-output",
        "train.optimizer": "paged-adamw-8bit", "train.optimizer_in_backward": True,
        "train.gradient_checkpointing": True, "train.activation_offload": True, "train.compile": False,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert isinstance(found["parallel.strategy"], Unknown)  # `tune run` names the recipe


def test_its_values_have_their_places(tmp_path: Path) -> None:
    reading = read("x.yaml", FULL, tmp_path)
    assert place(reading, "train.optimizer_in_backward", tmp_path) == "True"
    assert place(reading, "train.loss", tmp_path) == "torchtune.modules.loss.LinearCrossEntropyLoss"
    assert place(reading, "train.seq_len", tmp_path) == "4096"


def test_adapters_on_quantised_weights(tmp_path: Path) -> None:
    found = values(read("x.yaml", LORA, tmp_path))
    assert (found["model.name"], found["train.quantization.type"]) == ("Qwen/Qwen2.5-7B", "nf4")
    assert found["train.peft.targets"] == ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert (found["train.peft.r"], found["train.peft.dropout"], found["train.peft.dtype"]) == (16, 0.05, "bf16")
    assert (found["train.loss"], found["train.optimizer_impl"]) == ("full", "fused")
    assert found["train.compile"] is True
    assert is_unknown(found["train.seq_len"])


def test_layers_that_a_family_has_in_one(tmp_path: Path) -> None:
    text = LORA.replace("qwen2_5.qlora_qwen2_5_7b_instruct", "phi3.lora_phi3_mini")
    found = values(read("x.yaml", text, tmp_path))
    assert found["train.peft.targets"] == ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    assert "train.quantization.type" not in found


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    here = Origin("run.sh", Span(0, 1))
    words = tuple(word(text, here) for text in ("method=lora_finetune_distributed", "batch_size=8",
                                                "tokenizer.max_seq_len=2048", "optimizer_in_bwd=False"))  # fmt: skip
    found = values(read("x.yaml", FULL, tmp_path, words))
    assert (found["train.batch_size"], found["train.seq_len"]) == (8, 2048)
    assert found["train.optimizer_in_backward"] is False
    assert (found["parallel.strategy"], found["parallel.options.fsdp_version"]) == ("fsdp", 2)


def test_settings_of_recipes_for_several_gpus(tmp_path: Path) -> None:
    more = "fsdp_cpu_offload: True\nfsdp_reshard_after_forward: False\ncustom_sharded_layers: [tok_embeddings]\n"
    found = values(read("x.yaml", FULL + more + "tensor_parallel_dim: 2\n", tmp_path))
    assert (found["parallel.strategy"], found["parallel.offload"]) == ("fsdp", "parameters")
    assert (found["parallel.options.reshard_after_forward"], found["parallel.tensor"]) == (False, 2)
    assert found["parallel.options.custom_sharded_layers"] is False  # the head stays with the root
    both = "custom_sharded_layers: ['tok_embeddings', 'output']\n"
    assert values(read("y.yaml", FULL + both, tmp_path))["parallel.options.custom_sharded_layers"] is True


def test_preferences_are_pairs_beside_a_reference(tmp_path: Path) -> None:
    text = FULL.replace("torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.rlhf.loss.DPOLoss")
    found = values(read("x.yaml", text, tmp_path))
    assert (found["train.batch_size"], found["train.copies.reference"]) == (4, 1)


@pytest.mark.parametrize(
    ("builder", "field", "value"),
    [
        ("llama3_2_vision.llama3_2_vision_11b", "model.name", None),
        ("llama3.llama3\n  embed_dim: 1024\n  num_layers: 8\n  num_heads: 8\n  vocab_size: 32000",
         "model.config.num_hidden_layers", 8),
        ("gemma2.lora_gemma2_9b", "model.name", "google/gemma-2-9b"),
    ],
)  # fmt: skip
def test_models_by_their_builders(builder: str, field: str, value: Value, tmp_path: Path) -> None:
    found = values(read("x.yaml", FULL.replace("llama3_1.llama3_1_8b", builder), tmp_path))
    assert is_unknown(found[field]) if value is None else found[field] == value
