"""Compiled layers and losses: what the partitioner keeps, and which values are storages."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import fx  # noqa: E402  (which need torch)

from preflight.tracer import compiled, steps  # noqa: E402

B, S, H, F, V, LAYERS = 2, 64, 64, 160, 512, 3
CONFIG = {"hidden_size": H, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": LAYERS,
          "intermediate_size": F, "vocab_size": V, "head_dim": 16}  # fmt: skip


def trace(**setup: Any) -> dict[str, Any]:
    whole = {"weights": "bf16", "autocast": None, "attention": "flash", "mask": False, "checkpointing": False,
             "peft": None, **setup}  # fmt: skip
    model = {"architecture": "llama", "config": CONFIG, "task": "causal-lm"}
    found: dict[str, Any] = steps.trace({"model": model, "setup": whole, "point": {"b": B, "s": S}, "kind": "train",
                                         "warm_up": False})  # fmt: skip
    return found


def at_the_end_of_forward(found: dict[str, Any]) -> list[int]:
    live: dict[int, int] = {}
    for index, (size, tag) in enumerate(found["events"]):
        if tag.startswith("backward"):
            break
        if size >= 0:
            live[index] = size
        else:
            live.pop(-1 - size, None)
    return list(live.values())


def test_a_compiled_layer_keeps_what_products_read_and_no_fp32_copies() -> None:
    kept = at_the_end_of_forward(trace(compile="layers"))
    tokens = B * S
    assert kept.count(tokens * F * 2) == 3 * LAYERS  # gate, up, and their product, which a matrix product reads
    plain = at_the_end_of_forward(trace())
    assert plain.count(tokens * F * 2) == 4 * LAYERS  # and the activation's own result
    assert plain.count(tokens * H * 4) - kept.count(tokens * H * 4) == 2 * LAYERS  # norms in fp32


def test_a_compiled_loss_keeps_sixteen_bit_logits() -> None:
    whole, compiled_loss = (at_the_end_of_forward(trace(compile=what)) for what in ("layers", "all"))
    assert whole.count(B * S * V * 4) > compiled_loss.count(B * S * V * 4) == 0
    assert compiled_loss.count(B * S * V * 2) == 1


@pytest.mark.slow
def test_every_parameter_still_gets_its_gradient_and_checkpoints_keep_inputs_only() -> None:
    for setup in ({}, {"checkpointing": True}, {"loss": "chunked"}):
        found = trace(compile="all", **setup)
        assert len(found["gradients"]) == len(found["parameters"])
    assert at_the_end_of_forward(trace(compile="all", checkpointing=True)).count(B * S * F * 2) == 0


@pytest.mark.slow
def test_the_same_step_comes_out_the_same() -> None:
    first, second = trace(compile="all"), trace(compile="all")
    assert first["events"] == second["events"]


def test_pointwise_work_between_products_is_no_storage() -> None:
    kept: list[fx.GraphModule] = []

    def body(x: Any, w: Any) -> Any:
        return torch.relu((x @ w).sin().cos() + 1) @ w

    call = compiled.function(body)
    x, w = (torch.zeros(8, 8, device="meta", requires_grad=True) for _ in range(2))
    graphs = compiled.allocate

    def seen(graph: fx.GraphModule, args: list[Any]) -> list[Any]:
        kept.append(graph)
        return graphs(graph, args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "allocate", seen)
        call(x, w).sum().backward()
    plan = compiled.Plan(kept[-2].graph)
    written = {str(node.target) for node in plan.written}
    assert not any("sin" in name or "cos" in name for name in written)
    assert x.grad is not None
