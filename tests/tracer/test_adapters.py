"""peft's methods on the meta device, against the same methods with values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from preflight.tracer import adapters, building, quantized, steps  # noqa: E402

CONFIG = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 2, "vocab_size": 512}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "c3a": {"block_size": 16}, "vblora": {"vector_length": 16}, "fourierft": {"n_frequency": 50},
    "trainable-tokens": {"token_indices": [1, 2, 3]}, "ia3": {"feedforward_modules": []},
    "llama-adapter": {"adapter_layers": 2}, "road": {"group_size": 16},
}  # fmt: skip
WHOLE = ("ln-tuning", "trainable-tokens", "llama-adapter", "prompt-tuning", "prefix-tuning", "p-tuning")
MET = ("loha", "lokr", "boft", "oft", "vera", "dora")
"""What is met most; the rest is slow."""


def described(method: str) -> dict[str, Any]:
    targets = None if method in WHOLE else ["q_proj", "v_proj"]
    return {"method": method, "r": 4, "targets": targets, "options": OPTIONS.get(method, {})}


def trace(setup: dict[str, Any], architecture: str = "llama", **config: int) -> dict[str, Any]:
    plain = {"weights": "fp32", "autocast": None, "attention": "sdpa", "mask": False, "checkpointing": False}
    model = {"architecture": architecture, "task": "causal-lm", "config": {**CONFIG, **config}}
    return steps.trace({
        "model": model, "setup": {**plain, **setup},
        "point": {"b": 2, "s": 5}, "kind": "train", "warm_up": False,
    })  # fmt: skip


def with_values(method: str) -> Any:
    """The same model with adapters on the CPU, made by peft with the config that the tracer makes."""
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **CONFIG))
    made = adapters._MAKERS[method](peft, described(method), {"task_type": "CAUSAL_LM"})
    adapted = peft.get_peft_model(model.train(), copy.deepcopy(made))
    if method == "lora-fa":  # its optimizer freezes one half of each adapter
        from peft.optimizers import create_lorafa_optimizer

        create_lorafa_optimizer(adapted, r=4, lora_alpha=8, lr=1e-3)
    return adapted


def methods() -> list[Any]:
    return [pytest.param(m, marks=() if m in MET else pytest.mark.slow) for m in adapters._MAKERS]


@pytest.fixture(autouse=True, scope="module")
def has_peft() -> None:
    """Imported where it is used: it takes two seconds."""
    pytest.importorskip("peft")


@pytest.mark.parametrize("method", methods())
def test_parameters_and_gradients_are_those_with_values(method: str) -> None:
    import peft

    if method == "bone" and not hasattr(peft, "BoneConfig"):
        pytest.skip("a release of peft that has no Bone")
    real = with_values(method)
    reply = trace({"peft": described(method)})
    found = {name: count for name, _, count, trains in reply["parameters"] if trains}
    assert found == {name: p.numel() for name, p in real.named_parameters() if p.requires_grad}
    ids = torch.zeros(2, 5, dtype=torch.int64)
    real(input_ids=ids, labels=ids).loss.backward()
    assert len(reply["gradients"]) == sum(p.grad is not None for p in real.parameters())


@pytest.mark.parametrize("method", ["x-lora", "poly", "shira", "cpt"])
def test_what_cannot_be_traced_says_why(method: str) -> None:
    with pytest.raises(adapters.UnknownMethod, match=adapters.CANNOT[method][:20]):
        trace({"peft": described(method)})


def test_an_option_that_peft_lacks_is_named() -> None:
    with pytest.raises(adapters.UnknownMethod, match="blocksize"):
        trace({"peft": {**described("oft"), "options": {"blocksize": 4}}})


def test_modules_that_are_saved_train_beside_adapters() -> None:
    saved = {**described("lora"), "options": {"modules_to_save": ["lm_head"], "lora_bias": True}}
    plain, more = trace({"peft": described("lora")}), trace({"peft": saved})
    trained = [sum(row[2] for row in reply["parameters"] if row[3]) for reply in (plain, more)]
    biases = 2 * CONFIG["hidden_size"] * CONFIG["num_hidden_layers"]
    assert trained[1] - trained[0] == CONFIG["hidden_size"] * CONFIG["vocab_size"] + biases


def test_adapters_of_fused_experts_train() -> None:
    """The gate and up weights of all experts of a layer are one parameter, the down weights another."""
    setup = {"weights": "bf16", "peft": {**described("lora"), "targets": ["gate_proj", "up_proj", "down_proj"]}}
    reply = trace(setup, "qwen3_moe", moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, head_dim=16)
    trained = [name for name, _, _, trains in reply["parameters"] if trains]
    assert len(trained) == len(reply["gradients"]) == CONFIG["num_hidden_layers"] * 2 * 2
    assert all(".mlp.experts." in name for name in trained)


def test_lora_fa_trains_one_half_of_each_adapter() -> None:
    lora, half = (trace({"peft": described(method)}) for method in ("lora", "lora-fa"))
    assert {row[0] for row in half["parameters"] if row[3]} == {
        row[0] for row in lora["parameters"] if row[3] and "lora_B" in row[0]
    }


def test_prefix_tuning_under_checkpointing_is_refused_as_by_peft() -> None:
    with pytest.raises(building.CannotBuild, match="prefix tuning"):
        trace({"peft": described("prefix-tuning"), "checkpointing": True})


def test_a_type_that_transformers_does_not_have_is_named() -> None:
    with pytest.raises(building.CannotBuild, match="no model type somebodys"):
        trace({}, "somebodys")


def test_options_of_values_change_nothing() -> None:
    scaled = {**described("lora"), "options": {"use_rslora": True, "init_lora_weights": "pissa_niter_4"}}
    assert trace({"peft": scaled})["events"] == trace({"peft": described("lora")})["events"]


@pytest.mark.parametrize("method", ["dora", "adalora"])
@pytest.mark.parametrize("kind", ["4bit", "int8"])
def test_adapters_that_read_quantised_weights(method: str, kind: str) -> None:
    """DoRA reads the weights of every layer that it adapts: they come back whole, 4-bit ones in 16 bits."""
    options = {"type": kind, "compute": "bf16" if kind == "4bit" else None, "upcast_rest": False}
    setup = {"weights": "bf16", "autocast": "bf16", "quantization": options}
    plain, read = (trace({**setup, "peft": described(m)}) for m in ("lora", method))
    assert len(read["gradients"]) == 4 * 3  # two layers, two targets: A, B, and the magnitude or the singular values
    whole = (2 if kind == "4bit" else 4) * CONFIG["hidden_size"] ** 2
    place = "forward:base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector.default"
    assert ((whole, place) in read["events"]) == (method == "dora")
    assert len(read["events"]) > len(plain["events"])


def test_layers_that_are_not_quantised_are_read_as_before() -> None:
    quantized.dequantise_for_dora()
    layer = torch.nn.Linear(4, 4)
    from peft.tuners.lora import dora

    assert dora.dequantize_module_weight(layer) is layer.weight
