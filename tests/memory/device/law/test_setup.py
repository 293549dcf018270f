"""The setup of a tape: what the tracer is told, and the key of a law."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from preflight.memory.device.law.adapters import Adapters
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.store import key_text

PLAIN = {"weights": "fp32", "autocast": None, "attention": "sdpa", "mask": False, "checkpointing": False, "peft": None}
LORA = Adapters("lora", ("q_proj", "v_proj"))


@pytest.mark.parametrize(
    ("setup", "more"),
    [
        (Setup(), {}),
        (Setup(frozen=("vision",)), {"frozen": ["vision"]}),
        (Setup(channels_last=False), {"channels_last": False}),
        (Setup(loss="fused", offload=True), {"loss": "fused", "offload": True}),
        (Setup(quantization=QuantizedWeights("4bit", "bf16", False)),
         {"quantization": {"type": "4bit", "compute": "bf16", "upcast_rest": False}}),
        (Setup(quantization=QuantizedWeights("gptq", None, False, bits=4, backend="torch")),
         {"quantization": {"type": "gptq", "compute": None, "upcast_rest": False, "bits": 4, "group": None,
                           "backend": "torch"}}),
        (Setup(peft=LORA), {"peft": {"method": "lora", "targets": ["q_proj", "v_proj"], "dropout": False}}),
        (Setup(peft=replace(LORA, targets=None, options={})),
         {"peft": {"method": "lora", "targets": None, "dropout": False, "r": None, "options": {}}}),
    ],
)  # fmt: skip
def test_the_tracer_is_told_what_is_set_and_no_more(setup: Setup, more: dict[str, object]) -> None:
    assert setup.wire() == {**PLAIN, **more}


def test_the_rank_of_adapters_comes_from_the_point_where_it_is_a_dimension() -> None:
    assert Setup(peft=LORA).wire({"b": 2, "r": 5})["peft"]["r"] == 5
    assert Setup(peft=replace(LORA, rank=8, options={})).wire({"b": 2})["peft"]["r"] == 8
    assert Setup().wire({"b": 2, "r": 5})["peft"] is None


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (Setup(), "causal-lm train fp32/plain sdpa exact stored full"),
        (Setup("bf16", "bf16", "eager", True, True), "causal-lm train bf16/bf16 eager padded checkpointed full"),
        (Setup(peft=replace(LORA, targets=("v_proj", "q_proj"), dropout=True, half="bf16")),
         "causal-lm train fp32/plain sdpa exact stored lora:q_proj-v_proj:dropout:bf16"),
        (Setup(quantization=QuantizedWeights("gptq", None, True, bits=4, backend="torch")),
         "causal-lm train fp32/plain sdpa exact stored gptq:input:4:None:torch:rest32 full"),
    ],
)  # fmt: skip
def test_a_setup_in_the_key_of_a_law(setup: Setup, text: str) -> None:
    assert key_text("causal-lm", "train", setup, {}) == text
