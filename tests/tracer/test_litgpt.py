"""litgpt's own decoder: what its step keeps, and from where a job's own description of it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from preflight.memory.device import estimate
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads.litgpt import litgpt, switches
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import SHIPPED_ONLY

torch = pytest.importorskip("torch")

from preflight.tracer import steps  # noqa: E402  (which needs torch)

B, S, H, V, LAYERS = 2, 256, 64, 512, 3
CONFIG = {
    "n_layer": LAYERS, "n_embd": H, "n_head": 4, "n_query_groups": 4, "head_size": 16, "rope_n_elem": 16,
    "intermediate_size": 3 * H, "vocab": V, "bias": False, "head_bias": False, "norm": "rms", "widens": True,
    "mlp": "silu", "parallel_residual": False, "shared_attention_norm": False, "scale_embeddings": False,
}  # fmt: skip
LORA = {"method": "lora", "r": 4, "targets": ["query", "value"], "dropout": False}


def trace(config: Mapping[str, object] = CONFIG, **setup: Any) -> dict[str, Any]:
    whole = {"weights": "bf16", "autocast": None, "attention": "flash", "mask": False, "checkpointing": False, **setup}
    model = {"kind": "litgpt", "task": "causal-lm", "config": {**CONFIG, **config}}
    found: dict[str, Any] = steps.trace({"model": model, "setup": whole, "point": {"b": B, "s": S}, "kind": "train",
                                         "warm_up": False})  # fmt: skip
    return found


def live_at_the_end_of_forward(found: Mapping[str, Any]) -> dict[int, tuple[int, str]]:
    live: dict[int, tuple[int, str]] = {}
    for index, (size, tag) in enumerate(found["events"]):
        if tag.startswith("backward"):
            break
        if size >= 0:
            live[index] = (size, tag)
        else:
            live.pop(-1 - size, None)
    return live


def test_the_fused_projection_stays_whole_since_values_are_a_view_of_it() -> None:
    fused = [size for size, tag in live_at_the_end_of_forward(trace(peft=LORA)).values() if tag.endswith("attn.attn")]
    assert fused.count(B * S * 3 * H * 2) >= LAYERS


def test_only_adapters_train_and_the_head_is_taken_128_positions_at_a_time_in_fp32() -> None:
    found = trace(peft=LORA)
    assert {name.split(".")[-1] for name, _, _, trains in found["parameters"] if trains} == {"lora_A", "lora_B"}
    pieces = [found["events"][birth][0] for birth in found["outputs"]]
    assert pieces == [B * 128 * V * 4] * (S // 128)
    assert found["loss_apart"]


def test_without_adapters_everything_trains_and_the_head_is_whole() -> None:
    found = trace()
    assert all(trains for *_, trains in found["parameters"])
    assert [found["events"][birth][0] for birth in found["outputs"]] == [B * S * V * 4]


def test_learnt_prompts_stand_beside_every_layer_but_the_first_two() -> None:
    """litgpt/adapter.py: ten positions of the model's width and a gate for each head, from the third layer on."""
    found = trace(peft={"method": "llama-adapter"})
    trained = {name: count for name, _, count, trains in found["parameters"] if trains}
    assert trained == {"h.2.attn.adapter_wte.weight": 10 * H, "h.2.attn.gating_factor": CONFIG["n_head"]}
    assert len(found["gradients"]) == 2
    pieces = [found["events"][birth][0] for birth in found["outputs"]]
    assert pieces == [B * 128 * V * 4] * (S // 128)


def test_what_old_bitsandbytes_keeps_lives_as_long_as_the_loss() -> None:
    options = {"type": "4bit", "compute": "bf16", "upcast_rest": False, "head": True, "loaded": "fp16"}
    old, new = (trace(peft=LORA, quantization={**options, "keeps_input": keeps}) for keeps in (True, False))
    assert sum(old["events"][birth][0] for birth in old["held"]) >= LAYERS * B * S * (2 * H + 3 * H) * 2
    assert not new["held"]


@pytest.mark.parametrize(("architecture", "config", "expected"), [
    ("llama", {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
               "intermediate_size": 96, "vocab_size": 100}, {"n_query_groups": 2, "norm": "rms", "mlp": "silu"}),
    ("falcon", {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100},
     {"n_query_groups": 1, "norm": "layer", "shared_attention_norm": True, "intermediate_size": 256}),
    ("gpt_neox", {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
                  "intermediate_size": 256}, {"rope_n_elem": 4, "bias": True, "parallel_residual": True}),
])  # fmt: skip
def test_checkpoints_in_litgpts_terms(architecture: str, config: dict[str, Any], expected: dict[str, Any]) -> None:
    job = build({"software": {"litgpt": "0.4.0"}})
    found = litgpt(job, architecture, config)
    assert found is not None
    assert {key: found[key] for key in expected} == expected
    assert litgpt(build({}), architecture, config) is None


def test_a_job_that_runs_litgpt_is_resolved_to_its_model() -> None:
    fields = {"model.name": "meta-llama/Llama-2-7b-hf", "train.batch_size": 1, "train.seq_len": 512,
              "train.precision": "bf16", "train.gradient_checkpointing": False, "train.optimizer": "adamw",
              "train.peft.method": "lora", "train.peft.r": 8, "software": {"litgpt": "0.5.0"}}  # fmt: skip
    found = resolve(build(fields))
    assert isinstance(found, Resolved)
    assert found.workload.wire()["kind"] == "litgpt"
    assert found.setup.peft.targets == ("query", "value")
    assert switches(["q_proj", "lm_head"]) == ["query", "head"]


def test_without_torch_transformers_law_stands_in() -> None:
    fields = {"model.name": "meta-llama/Llama-2-7b-hf", "train.batch_size": 1, "train.seq_len": 512,
              "train.precision": "bf16", "train.gradient_checkpointing": False, "train.optimizer": "adamw",
              "train.peft.method": "lora", "train.peft.r": 8, "train.peft.dropout": 0.05}  # fmt: skip
    software = {"software": {"litgpt": "unstated"}}
    theirs, plain = (estimate(build({**fields, **more}), None, SHIPPED_ONLY) for more in (software, {}))
    assert isinstance(theirs, DeviceEstimate)
    assert isinstance(plain, DeviceEstimate)
    assert theirs.allocated.expected == plain.allocated.expected
    assert theirs.allocated.high > 1.1 * plain.allocated.high
    assert any("litgpt" in note for note in theirs.notes)


def test_shards_are_filled_from_whole_weights() -> None:
    fields = {"model.name": "meta-llama/Llama-2-7b-hf", "train.batch_size": 1, "train.seq_len": 512,
              "train.precision": "bf16", "train.gradient_checkpointing": True, "train.optimizer": "adamw",
              "train.peft.method": "lora", "train.peft.r": 8, "train.peft.targets": ["q_proj", "v_proj"],
              "parallel.strategy": "fsdp", "parallel.gpus_per_node": 2, "parallel.ranks_per_node": 2}  # fmt: skip
    plain, old, new = (estimate(build({**fields, **more}), None) for more in (
        {}, {"software": {"litgpt": "0.4.0"}}, {"software": {"litgpt": "0.5.0"}}))  # fmt: skip
    assert isinstance(plain, DeviceEstimate)
    assert isinstance(old, DeviceEstimate)
    assert isinstance(new, DeviceEstimate)
    assert (old.phase, new.allocated.expected) == ("load", plain.allocated.expected)
    assert old.allocated.expected > 1.5 * 2 * 6_738_415_616  # a half of the weights, and all of them
