"""Weights that FSDP gathers in 16 bits: the step of a model stored in them, over states in fp32."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from preflight.memory.device import fsdp_in_16_bits
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY, TRACE, Tracing
from preflight.vocabulary.values import Unknown

CONFIG: dict[str, object] = {
    "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 2816, "vocab_size": 32000, "num_hidden_layers": 12, "use_cache": False,
}  # fmt: skip
NONE: dict[str, object] = {}
LLAMA: dict[str, object] = {"model.architecture": "llama", "model.config": CONFIG}
GPT2: dict[str, object] = {"model.name": "openai-community/gpt2"}
SAME = ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "allenai/OLMo-2-0425-1B",
        "google/gemma-2-2b", "google/gemma-2b", "microsoft/Phi-3-mini-4k-instruct")  # fmt: skip


def job(model: Mapping[str, object], strategy: str = "fsdp", more: Mapping[str, object] = NONE) -> Job:
    ranks = 1 if strategy == "none" else 8
    return build({
        **model, "task": "causal-lm", "train.batch_size": 4, "train.seq_len": 512, "train.sequences": "exact",
        "train.precision": "bf16-mixed", "train.optimizer": "adamw", "parallel.strategy": strategy,
        "parallel.gpus_per_node": ranks, "parallel.ranks_per_node": ranks,
        **more,
    })  # fmt: skip


def ready(wanted: Job, tracing: Tracing = SHIPPED_ONLY) -> PreparedJob:
    found = prepare(wanted, tracing=tracing)
    assert not isinstance(found, Unknown), found
    return found


OPTIONS: dict[str, object] = {"fsdp_version": 2, "no_sync": False, "param_dtype": "bf16", "reduce_dtype": "fp32"}


def test_the_stream_has_two_bytes_and_states_have_four(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = job(LLAMA, more={"parallel.options": OPTIONS, "train.gradient_checkpointing": True})
    here = ready(wanted)
    monkeypatch.setattr(fsdp_in_16_bits, "laws_of", lambda *given: None)
    other = ready(wanted)
    assert here.rank.weights == other.rank.weights
    assert here.gradients == other.gradients
    assert here.optimizer.states == other.optimizer.states
    b, s, h, layers = 64, 512, 1024, 12
    assert _peak(other, b) - _peak(here, b) >= 2 * b * s * h * layers  # each layer's saved input


def _peak(one: PreparedJob, batch: int) -> int:
    return int(one.rank.laws.plain.peak({**one.rank.dims, "b": batch}).bytes)


@pytest.mark.parametrize(("model", "more", "changes"), [
    (LLAMA, {}, True),
    (LLAMA, {"parallel.options": {**OPTIONS, "param_dtype": "fp32"}}, False),
    (LLAMA, {"train.peft.method": "lora", "train.peft.r": 8}, False),
    (LLAMA, {"train.precision": "bf16"}, False),
    (GPT2, {}, False),  # autocast computes its norms in fp32
    (GPT2, {"train.precision": "fp32"}, True),  # no autocast: what is gathered is what computes
])  # fmt: skip
def test_whose_law_is_another(monkeypatch: pytest.MonkeyPatch, model: Mapping[str, object],
                              more: Mapping[str, object], changes: bool) -> None:  # fmt: skip
    wanted = job(model, more={"parallel.options": OPTIONS, **more})
    found = ready(wanted)
    assert ready(wanted).laws is found.laws
    monkeypatch.setattr(fsdp_in_16_bits, "laws_of", lambda *given: None)
    assert (ready(wanted).laws.made.tape != found.laws.made.tape) == changes


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_sixteen_bit_weights_step_alike_with_and_without_autocast(name: str, checkpointing: bool) -> None:
    pytest.importorskip("torch")
    more: dict[str, object] = {"train.gradient_checkpointing": checkpointing}
    mixed = ready(job({"model.name": name}, "none", {**more, "train.weights_dtype": "bf16"}), TRACE)
    plain = ready(job({"model.name": name}, "none", {**more, "train.precision": "bf16"}), TRACE)
    assert mixed.resolved.family is not None
    assert mixed.resolved.family.name in fsdp_in_16_bits.SAME_UNDER_AUTOCAST
    for batch, length in ((4, 512), (8, 1024)):
        dims = {**mixed.dims, "b": batch, "s": length}
        assert mixed.laws.plain.peak(dims).bytes == pytest.approx(plain.laws.plain.peak(dims).bytes, rel=1e-3)


def test_the_parallel_loss_has_a_fourth_tensor_of_logits() -> None:
    model = {**LLAMA, "model.config": {**CONFIG, "vocab_size": 256000}}
    common: dict[str, object] = {"parallel.tensor": 4, "train.gradient_checkpointing": True}
    options = {**OPTIONS, "sequence_parallel": False}
    stated = ready(job(model, more={**common, "parallel.options": {**options, "loss_parallel": True}}))
    other = ready(job(model, more={**common, "parallel.options": options}))
    logits = 4 * 4 * 512 * 256000 // 4
    assert _peak(stated, 4) - _peak(other, 4) == logits
