"""Adapters stand beside a set of layers: neither its order nor the word for all of them makes another law."""

from __future__ import annotations

import pytest

from preflight.memory.device.law import store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import build

GATED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def key(targets: list[str] | str, model: str = "meta-llama/Llama-3.1-8B") -> str:
    job = build({
        "model.name": model, "task": "causal-lm", "train.batch_size": 2, "train.seq_len": 512,
        "train.precision": "bf16", "train.peft.method": "lora", "train.peft.targets": targets,
    })  # fmt: skip
    found = resolve(job)
    assert isinstance(found, Resolved)
    return store.key_of(found, "train").text


@pytest.mark.parametrize(
    "names", [["v_proj", "q_proj"], sorted(GATED), list(reversed(GATED)), ["fc2", "q_proj", "fc1"]]
)
def test_the_order_of_layers_is_none_of_a_laws(names: list[str]) -> None:
    assert key(names) == key(list(reversed(names)))


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B"])
def test_all_linear_is_the_list_of_them(model: str) -> None:
    assert key("all-linear", model) == key(GATED, model)
    assert store.load(store.LawKey("llama" if "llama" in model else "qwen2", key("all-linear", model))) is not None


def test_keys_that_ship_are_in_that_order() -> None:
    """A key in another order would never be found."""
    texts = [text for family in ("llama", "qwen2", "gemma2", "qwen3", "phi3", "phi") for text in store.keys(family)]
    adapted = {part.split(":")[1] for text in texts for part in text.split() if part.startswith("lora:")}
    assert adapted
    assert all("-".join(store.in_order(names.split("-"))) == names for names in adapted)
