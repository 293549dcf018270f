"""Keys of a model's config that no law is told of: none of them may change what a step holds."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.memory.device.families import FAMILIES, Family, family_of, unlike
from preflight.memory.device.fit.make import request
from preflight.memory.device.law import catalogue
from preflight.memory.device.law.attention import window
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

LLAMA: dict[str, Any] = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 1024, "vocab_size": 8000,
}  # fmt: skip


def resolved(architecture: str, config: dict[str, Any], **fields: object) -> Resolved | Unknown:
    return resolve(build({
        "model.architecture": architecture, "model.config": config, "train.batch_size": 2, "train.seq_len": 256,
        "train.precision": "bf16", "train.attention": "sdpa", **fields,
    }))  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "key", "other"),
    [
        ("phi3", "partial_rotary_factor", 0.75),
        ("gemma2", "attn_logit_softcapping", None),
        ("gpt2", "add_cross_attention", True),
        ("deberta-v2", "conv_kernel_size", 3),
        ("deberta-v2", "norm_rel_ebd", "none"),
        ("qwen3_moe", "mlp_only_layers", [0]),
        ("bart", "tie_word_embeddings", False),
        ("whisper", "activation_dropout", 0.1),
        ("bert", "chunk_size_feed_forward", 64),
        ("qwen3", "layer_types", ["full_attention", "sliding_attention"]),
    ],
)
def test_a_model_that_is_made_otherwise_is_of_no_family(architecture: str, key: str, other: object) -> None:
    assert unlike(architecture, {key: other}) == key
    assert family_of(architecture, {key: other}) is None
    assert family_of(architecture, {}) is not None


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["full_attention"] * 4},
        {"partial_rotary_factor": 1.0},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"attention_bias": True},
        {"pretraining_tp": 2},
    ],
)
def test_what_changes_nothing_is_let_pass(config: dict[str, Any]) -> None:
    found = resolved("llama", {**LLAMA, **config})
    assert isinstance(found, Resolved)
    assert found.family is not None


def test_the_key_is_named() -> None:
    found = resolved("qwen3", {**LLAMA, "layer_types": ["full_attention", "sliding_attention"] * 2})
    assert isinstance(found, Resolved)
    assert found.family is None
    assert "layer_types" in found.name


@pytest.mark.parametrize(
    ("given", "how"),
    [
        (None, None),
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "fp8"}, "FP8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"load_in_4bit": True}, "fp4"),
        ({"load_in_8bit": True, "load_in_4bit": False}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False}, None),
    ],
)
def test_a_config_says_how_its_weights_are_quantised(given: object, how: str | None) -> None:
    config = {**LLAMA, "quantization_config": given}
    assert catalogue.quantised_by(config) == how
    found = resolved("llama", config)
    assert isinstance(found, Unknown) == (how is not None)
    if how in ("nf4", "int8"):
        assert isinstance(resolved("llama", config, **{"train.quantization.type": how}), Resolved)


@pytest.mark.parametrize(
    ("architecture", "config", "reach"),
    [
        ("mistral", {}, 4096),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"sliding_window": 128}, 128),
        ("phi3", {"sliding_window": 2047}, 2047),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, None),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True}, 4096),
        ("llama", {"sliding_window": 128}, None),
    ],
)
def test_how_far_layers_see(architecture: str, config: dict[str, Any], reach: int | None) -> None:
    assert window(architecture, config) == reach


@pytest.mark.parametrize(("length", "masked"), [(127, False), (128, True), (512, True)])
def test_a_sequence_longer_than_the_window_has_a_mask(length: int, masked: bool) -> None:
    exact = {"train.sequences": "exact", "train.seq_len": length}
    found = resolved("mistral", {**LLAMA, "sliding_window": 128}, **exact)
    assert isinstance(found, Resolved)
    assert found.setup.mask is masked
    flash = resolved("mistral", {**LLAMA, "sliding_window": 128}, **exact, **{"train.attention": "flash"})
    assert isinstance(flash, Resolved)
    assert flash.setup.mask is False


# --- every key of every family, one after the other -------------------------------------------------------------------

NAMED_TWICE = {"is_gated_act", "num_local_experts", "new_decoder_architecture"}
"""What another key says as well, which the family reads."""
BY_CHANCE = {"encoder_layerdrop", "decoder_layerdrop", "layerdrop"}
"""Layers that are left out at random: the step that leaves none out is the largest."""
LITTLE = 0.002
"""Of the peak, or of the parameters: biases, and rows of small embeddings."""


def _first(family: Family) -> Resolved | None:
    """A model of the family, from the catalogue."""
    for name in catalogue.names():
        found = resolve(build({
            "model.name": name, "train.batch_size": 2, "train.seq_len": 64, "train.target_len": 32,
            "train.text_len": 16, "train.precision": "bf16-mixed",
        }))  # fmt: skip
        if isinstance(found, Resolved) and found.family is family and found.like is None:
            return found
    return None


def _others(value: object) -> list[object]:
    """Values that a key may have instead."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, float):
        return [0.1 if value == 0 else 0.0]
    if isinstance(value, int):
        return [value + 1 if value < 4 else 2 * value]
    return [True] if value is None else []


def _sizes(reply: dict[str, Any]) -> tuple[int, int]:
    """Peak bytes and parameters of a trace."""
    sizes: list[int] = []
    live = peak = 0
    for size, _ in reply["events"]:
        live += size if size >= 0 else -sizes[-1 - size]
        sizes.append(max(size, 0))
        peak = max(peak, live)
    return peak, sum(row[2] for row in reply["parameters"])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_no_other_key_changes_what_a_step_holds(name: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from preflight.tracer import steps

    family = FAMILIES[name]
    model = _first(family)
    if model is None:
        pytest.skip("no model of it is in the catalogue")
    dims = {**model.all_dims, **dict.fromkeys(family.depths.values(), 2)}
    dims |= {key: 1000 for key in ("V",) if key in dims}
    asked = {**request(family, model.task, "train", model.setup, model.structure, dims), "warm_up": False}
    config = asked["model"]["config"]
    peak, parameters = _sizes(steps.trace(asked))
    known = transformers.AutoConfig.for_model(family.model_type, **config).to_dict()
    free = {k: v for k, v in known.items() if k not in config and k not in model.structure and not k.startswith("_")}
    read = {"num_labels", "vocab_size", "output_attentions", "output_hidden_states", *NAMED_TWICE, *BY_CHANCE}
    changed = []
    for key, value in free.items():
        if key in read or key.endswith(("_id", "_size", "_heads", "_layers", "_positions", "_dim")):
            continue
        for other in _others(value):
            try:
                found = steps.trace({**asked, "model": {**asked["model"], "config": {**config, key: other}}})
            except Exception:
                continue  # no value that the key may have
            more, count = _sizes(found)
            if abs(more / peak - 1) > LITTLE or abs(count / parameters - 1) > LITTLE:
                changed.append(key)
    assert [key for key in changed if unlike(name, {key: _others(free[key])[0]}) is None] == []
