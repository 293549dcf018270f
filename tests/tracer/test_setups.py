"""Quantised layers, losses, adapters and saved activations in host memory, as the tracer makes them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from preflight.tracer import steps  # noqa: E402
from preflight.tracer.quantized import Linear4bit, Linear8bit  # noqa: E402

B, S, V, H, F = 2, 32, 509, 64, 160
CONFIG = {"hidden_size": H, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": F,
          "vocab_size": V, "num_hidden_layers": 2, "pad_token_id": 0}  # fmt: skip
SETUP = {"weights": "bf16", "autocast": None, "attention": "sdpa", "mask": False, "checkpointing": False, "peft": None}
LORA = {"method": "lora", "r": 4, "targets": ["q_proj", "v_proj"], "dropout": 0.0}


@pytest.fixture(scope="module", autouse=True)
def adapters_are_installed() -> None:
    """Skips where peft is missing. It is imported when the first test runs: every worker collects every file."""
    pytest.importorskip("peft")


def trace(**changes: Any) -> dict[str, Any]:
    model = {"architecture": "llama", "task": "causal-lm", "config": CONFIG}
    return steps.trace({"model": model, "setup": {**SETUP, **changes}, "point": {"b": B, "s": S}, "kind": "train",
                        "warm_up": False})  # fmt: skip


def peak(reply: dict[str, Any], phases: tuple[str, ...] = ("forward", "backward")) -> int:
    live = most = 0
    for value, tag in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        most = max(most, live if tag.startswith(phases) else 0)
    return most


def kept_through_forward(reply: dict[str, Any]) -> int:
    """Bytes alive when backward begins."""
    live = 0
    for value, tag in reply["events"]:
        if tag.startswith("backward"):
            break
        live += value if value >= 0 else -reply["events"][-1 - value][0]
    return live


def weights(reply: dict[str, Any]) -> float:
    return sum(row[1] for row in reply["parameters"] if "lora" not in row[0])


@pytest.mark.parametrize(("kind", "each"), [("4bit", 0.5 + 4 / 64), ("int8", 1.0)])
def test_quantised_weights(kind: str, each: float) -> None:
    options = {"type": kind, "compute": "bf16", "upcast_rest": False}
    linear = 2 * (2 * H * 64 + 2 * H * 32 + 3 * H * F)  # two layers: q and o, k and v, the feed-forward
    whole = 2 * (2 * V * H + 5 * H)  # embeddings, head and norms in 16 bits
    scales = 4 * 2 * (64 + 32 + 32 + H + F + F + H) if kind == "int8" else 0
    assert weights(trace(quantization=options, peft=LORA)) == linear * each + whole + scales
    upcast = trace(quantization={**options, "upcast_rest": True}, peft=LORA)
    assert weights(upcast) == linear * each + 2 * whole + scales


def test_int8_layers_keep_their_input_through_forward_unless_checkpointing_is_reentrant() -> None:
    """In each of two layers: the input of the attention, its output, the input of the feed-forward and its product."""
    options = {"type": "int8", "compute": None, "upcast_rest": False}
    kept, again = (
        kept_through_forward(trace(quantization={**options, "recomputed": one}, peft=LORA, checkpointing=True))
        for one in (False, True)
    )
    assert kept - again == 2 * (3 * H + F) * B * S * 2


def test_four_bits_are_turned_back_in_both_directions() -> None:
    layer = Linear4bit(torch.nn.Linear(H, F, device="meta", dtype=torch.bfloat16), torch.bfloat16, False)
    x = torch.zeros(B, S, H, device="meta", dtype=torch.float32, requires_grad=True)
    out = layer(x)
    assert (out.shape, out.dtype) == ((B, S, F), torch.float32)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is torch.float32


def test_what_layers_keep_for_backward() -> None:
    plain = kept_through_forward(trace(quantization={"type": "4bit", "compute": "bf16"}, peft=LORA))
    old = kept_through_forward(trace(quantization={"type": "4bit", "compute": "bf16", "keeps_input": True}, peft=LORA))
    assert old > plain  # bitsandbytes before 0.43.2
    layer = Linear8bit(torch.nn.Linear(H, F, device="meta", dtype=torch.float16))
    out = layer(torch.zeros(B, S, H, device="meta", dtype=torch.float16, requires_grad=True))
    assert out.dtype is torch.float16


def test_losses() -> None:
    logits = B * S * V
    today, shifted, out = (kept_through_forward(trace(loss=loss)) for loss in (None, "shifted", "shifted-out"))
    fused, chunked = kept_through_forward(trace(loss="fused")), peak(trace(loss="chunked"))
    assert shifted - today == pytest.approx(0, abs=8 * B * V)  # the copy takes the place of what was copied
    more = peak(trace(loss="shifted"), ("forward",)) - peak(trace(), ("forward",))
    assert more == pytest.approx(4 * logits, rel=0.1)
    assert out >= shifted
    # No logits, but the gradients of the head and of its input are there already.
    assert today - fused == pytest.approx(4 * logits - 2 * V * H, rel=0.05)
    assert chunked < peak(trace())


def test_saved_activations_wait_in_host_memory() -> None:
    assert kept_through_forward(trace(offload=True)) < kept_through_forward(trace()) / 2
    assert peak(trace(offload=True)) < peak(trace())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lora", {}), ("dora", {}), ("adalora", {}), ("loha", {}), ("lokr", {}), ("vera", {}), ("ia3", {}),
        ("oft", {"oft_block_size": 8}), ("ln-tuning", {}), ("prompt-tuning", {"num_virtual_tokens": 5}),
        ("prefix-tuning", {"num_virtual_tokens": 5}), ("p-tuning", {"num_virtual_tokens": 5}),
        ("llama-adapter", {"adapter_len": 4, "adapter_layers": 2}),
    ],
)  # fmt: skip
def test_every_kind_of_adapter(method: str, options: dict[str, Any]) -> None:
    targets = ["q_proj"] if method in ("lora", "dora", "adalora", "loha", "lokr", "vera", "oft") else None
    reply = trace(peft={"method": method, "r": 4, "targets": targets, "options": options})
    trained = [row for row in reply["parameters"] if row[3]]
    assert trained
    assert sum(row[2] for row in trained) < sum(row[2] for row in reply["parameters"]) / 4
    assert {reply["gradients"][birth] for birth in reply["gradients"]}


def test_adapters_in_sixteen_bits() -> None:
    def adapters(**more: Any) -> int:
        return sum(row[1] for row in trace(peft={**LORA, **more})["parameters"] if "lora" in row[0])

    assert adapters() == 2 * adapters(half="bf16")


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gpt2", {"n_embd": H, "n_head": 4, "n_layer": 2, "vocab_size": V}),
        ("falcon", {"hidden_size": H, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": V}),
    ],
)
def test_layers_that_are_linear_by_another_name(architecture: str, config: dict[str, Any]) -> None:
    model = {"architecture": architecture, "task": "causal-lm", "config": config}
    names = {"gpt2": "c_attn", "falcon": "query_key_value"}
    setup = {
        **SETUP,
        "quantization": {"type": "4bit", "compute": "bf16"},
        "peft": {**LORA, "targets": [names[architecture]]},
    }
    reply = steps.trace({"model": model, "setup": setup, "point": {"b": B, "s": S}, "kind": "train", "warm_up": False})
    wide = [
        row for row in reply["parameters"] if row[2] >= H * H and "lora" not in row[0] and row[0].endswith("weight")
    ]
    layers = [row for row in wide if ".h." in row[0]]
    assert len(layers) == 8
    assert all(row[1] == row[2] / 2 for row in layers)
