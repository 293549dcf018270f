"""What no law ships of is answered by the law that differs by a bounded number of bytes, and the answer says so."""

from __future__ import annotations

import pytest
from shipped import estimate

from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build

B, S, V = 2, 512, 50257


def found(transformers: str | None) -> DeviceEstimate:
    job = build({
        "model.name": "gpt2", "task": "causal-lm", "train.batch_size": B, "train.seq_len": S,
        "software": {"transformers": transformers} if transformers else {},
    })  # fmt: skip
    one = estimate(job, None)
    assert isinstance(one, DeviceEstimate)
    return one


def test_the_loss_before_4_46_has_todays_peak() -> None:
    today, older = found(None), found("4.42.3")
    assert (older.lower_bound, older.requested) == (False, today.requested)
    assert any("loss" in note for note in older.notes)
    assert not today.notes


def test_the_loss_of_4_47_may_have_a_copy_of_the_logits_more() -> None:
    today, older = found(None), found("4.47.0")
    assert older.requested.expected == today.requested.expected
    wider = older.requested.high - today.requested.high
    assert wider == pytest.approx(2 * B * S * V, rel=0.01)


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed", "fp16"])
def test_4_bit_layers_without_a_stated_compute_dtype_are_answered(precision: str) -> None:
    def job(compute: str | None) -> DeviceEstimate:
        stated = {"train.quantization.compute_dtype": compute} if compute else {}
        one = estimate(build({
            "model.name": "meta-llama/Llama-3.1-8B", "task": "causal-lm", "train.batch_size": 2, "train.seq_len": 512,
            "train.precision": precision, "train.quantization.type": "nf4", "train.peft.method": "lora", **stated,
        }), None)  # fmt: skip
        assert isinstance(one, DeviceEstimate)
        return one

    half, unstated = job(precision.removesuffix("-mixed")), job(None)
    assert (unstated.lower_bound, unstated.requested.expected) == (False, half.requested.expected)
    widest = 4 * (14336 * 4096 + 2 * 512 * (14336 + 4096))
    assert unstated.requested.high - half.requested.high == pytest.approx(widest, rel=0.01)
    assert any("16 bits" in note for note in unstated.notes)
