"""Fused kernels, losses that never have all logits, and experts by the release of transformers."""

from __future__ import annotations

import pytest

from preflight.memory.device.law.loss_and_kernels import loss_of
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.prepare import prepare
from preflight.memory.device.resolve import resolve
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.run import requested_peak
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import Tracing

CONFIG = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
          "num_hidden_layers": 2, "intermediate_size": 512, "vocab_size": 32000}  # fmt: skip
DENSE = {"model.architecture": "llama", "task": "causal-lm", "train.batch_size": 2, "train.seq_len": 1024,
         "train.sequences": "exact", "train.precision": "bf16", "train.optimizer": "sgd",
         "model.config": CONFIG}  # fmt: skip
EXPERTS = {**DENSE, "model.architecture": "mixtral", "train.peft.method": "lora",
           "train.peft.targets": ["q_proj", "v_proj"],
           "model.config": {**CONFIG, "num_local_experts": 4, "num_experts_per_tok": 2}}  # fmt: skip
LONG = 8192
LOGITS = 2 * LONG * 32000 * 2


def prepared(fields: dict[str, object], **changes: object) -> PreparedJob:
    found = prepare(build({**fields, **changes}))
    assert isinstance(found, PreparedJob), found
    return found


def setup(fields: dict[str, object], **changes: object) -> Setup:
    found = resolve(build({**fields, **changes}))
    assert isinstance(found, Resolved), found
    return found.setup


@pytest.mark.parametrize(
    ("asked", "software", "loss"),
    [
        ("chunked", {}, "pieces"),
        ("chunked", {"torchtune": "0.6"}, "chunked"),
        ("chunked", {"litgpt": "0.5"}, "chunked"),
        ("chunked-output", {}, "chunked"),
        ("log-probabilities", {}, "log-probabilities"),
        ("full", {}, None),
    ],
)
def test_which_loss_a_job_means(asked: str, software: dict[str, str], loss: str | None) -> None:
    assert loss_of(asked, software.get("transformers"), software) == loss


@pytest.mark.slow
def test_a_chunked_loss_never_has_the_logits_as_a_whole() -> None:
    pytest.importorskip("transformers")
    peaks = {
        loss: requested_peak(prepared(DENSE, **{"train.loss": loss, "train.seq_len": LONG}))
        for loss in ("chunked", "chunked-output", "log-probabilities", "full")
    }
    assert peaks["chunked"] + LOGITS < peaks["chunked-output"] < peaks["full"], peaks
    assert peaks["chunked"] + LOGITS < peaks["log-probabilities"] < peaks["full"], peaks


@pytest.mark.slow
def test_fused_kernels_take_less_where_activations_stay() -> None:
    pytest.importorskip("transformers")
    given = {"train.loss": "fused", "train.batch_size": 16}
    peaks = [
        requested_peak(prepared(DENSE, **given, **{"train.fused_kernels": kernels}))
        for kernels in ([], ["norm"], ["norm", "rope", "mlp"])
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == 3


def test_without_a_trace_the_plain_law_stands_in_and_says_so() -> None:
    job = build({"model.name": "Qwen/Qwen2.5-0.5B", "train.batch_size": 1, "train.seq_len": 128,
                 "train.precision": "bf16", "train.fused_kernels": ["norm"]})  # fmt: skip
    found = resolve(job)
    assert isinstance(found, Resolved)
    laws = laws_for(found, "train", Tracing(False))
    assert "fused kernels" in getattr(laws, "instead", ""), laws


def test_releases_before_5_list_their_experts() -> None:
    assert setup(EXPERTS, software={"transformers": "4.48"}).experts == "listed"
    assert setup(EXPERTS, software={"transformers": "5.0"}).experts is None
    assert setup(EXPERTS).experts is None
    assert setup(DENSE, software={"transformers": "4.48"}).experts is None


def test_listed_experts_are_quantised_and_fused_ones_are_not() -> None:
    pytest.importorskip("peft")
    packed = {"train.quantization.type": "nf4", "train.quantization.compute_dtype": "bf16"}
    listed = prepared(EXPERTS, **packed, software={"transformers": "4.48"}).weights
    fused = prepared(EXPERTS, **packed).weights
    experts = 2 * 4 * 3 * 256 * 512
    assert fused - listed > experts  # more than a byte an element
