"""Shipped laws of segmenters and of embedded texts: they answer without torch, and hold for what they are a function
of."""

from __future__ import annotations

import pytest
from shipped import estimate as estimated

from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build

TEXTS: dict[str, object] = {"task": "contrastive", "train.seq_len": 128, "model.kwargs": {"texts": 2}}


def device(**fields: object) -> DeviceEstimate:
    stated = {name.replace("__", "."): value for name, value in fields.items()}
    found = estimated(build({"train.batch_size": 16, **stated}), None)
    assert isinstance(found, DeviceEstimate), found
    assert not any("lower bound" in note for note in found.notes), found.notes
    return found


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "BAAI/bge-base-en-v1.5", "intfloat/multilingual-e5-large"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize("texts", [2, 3])
def test_encoders_that_are_trained_most_have_laws(name: str, precision: str, texts: int) -> None:
    changes: dict[str, object] = {**TEXTS, "model.kwargs": {"texts": texts}}
    assert device(model__name=name, train__precision=precision, **changes).requested.expected > 0


def test_a_third_text_takes_as_much_as_the_second() -> None:
    one, two, three = (
        device(model__name="microsoft/mpnet-base", **{**TEXTS, **more}).breakdown["activations"]
        for more in ({"train.batch_size": 8}, {}, {"model.kwargs": {"texts": 3}})
    )
    assert three - two == pytest.approx(one, rel=0.1)  # half of the batch of two texts is one text of the whole


def test_what_is_not_said_of_texts_is_in_the_interval() -> None:
    said = device(model__name="microsoft/mpnet-base", **{**TEXTS, "model.kwargs": {"texts": 3}})
    unsaid = device(model__name="microsoft/mpnet-base", **{**TEXTS, "model.kwargs": {}})
    assert unsaid.requested.high >= said.requested.expected
    assert any("model.kwargs.texts" in note for note in unsaid.notes)
    single = device(model__name="microsoft/mpnet-base", task="sequence-classification", train__seq_len=128)
    assert unsaid.requested.expected > single.requested.expected


@pytest.mark.parametrize("name", ["nvidia/mit-b0", "nvidia/segformer-b1-finetuned-ade-512-512"])
def test_a_segformer_has_a_law_at_every_side(name: str) -> None:
    small, large = (device(model__name=name, train__image_size=side) for side in (512, 1024))
    assert large.breakdown["activations"] > 3 * small.breakdown["activations"]
    few = device(model__name=name, train__image_size=512, model__config={"num_labels": 2})
    assert few.requested.expected < small.requested.expected
