"""ControlNets beside a frozen denoiser: what is trained and kept, without torch; the tapes against traces, with it."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import estimate as estimated
from shipped import laws_for, prepare

from preflight.memory.device.law.law import Law
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

SD15, SDXL = "stable-diffusion-v1-5/stable-diffusion-v1-5", "stabilityai/stable-diffusion-xl-base-1.0"
CONTROLNET: dict[str, object] = {
    "model.name": SD15, "train.batch_size": 2, "train.precision": "fp16-mixed", "train.peft.method": "controlnet",
    "train.gradient_checkpointing": True, "train.companions": ["vae", "text_encoder"],
}  # fmt: skip


def ready(**changes: object) -> PreparedJob:
    found = prepare(build({**CONTROLNET, **{name.replace("__", "."): value for name, value in changes.items()}}))
    assert isinstance(found, PreparedJob), found
    return found


@pytest.mark.parametrize(("model", "count"), [(SD15, 361_279_120), (SDXL, 1_251_014_160)])
def test_what_is_trained_is_the_published_size(model: str, count: int) -> None:
    # lllyasviel/sd-controlnet-canny, diffusers/controlnet-canny-sdxl-1.0: elements of their files of weights.
    some = ready(model__name=model, train__companions=["vae"])
    assert sum(n for n, _, trains in some.parameters if trains) == count


def test_the_denoiser_is_frozen_in_16_bits_and_gradients_stay() -> None:
    some = ready()
    assert {each for _, each, trains in some.parameters if trains} == {4}
    assert {each for _, each, trains in some.parameters if not trains} == {2}
    assert some.zeros_stay
    assert not ready(train__peft__method="lora").zeros_stay


def test_images_of_validation_have_a_law() -> None:
    found = estimated(build({**CONTROLNET, "validation.generates": True}), None)
    assert isinstance(found, DeviceEstimate), found
    assert found.phases["validation"] > 0


def _peak(reply: dict[str, Any]) -> int:
    live = peak = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        peak = max(peak, live)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "dims"),
    [
        ({}, {"b": 3, "u": 8}),
        ({"train__gradient_checkpointing": False}, {"b": 2, "u": 12}),
        ({"model__name": SDXL, "train__companions": ["vae"]}, {"b": 1, "u": 16}),
    ],
)
def test_a_controlnets_law_is_the_trace(changes: dict[str, object], dims: dict[str, int]) -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    asked = ready(**changes).resolved
    law = laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    reply = steps.trace(asked.request("train").at(dims))
    assert Law(law.made.tape).peak(dims).bytes == pytest.approx(_peak(reply), rel=0.001)


@pytest.mark.slow
def test_the_denoisers_encoder_keeps_nothing_for_backward() -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    config = {
        "block_out_channels": [32, 64], "layers_per_block": 1, "cross_attention_dim": 32, "attention_head_dim": 8,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    }  # fmt: skip
    model = {"kind": "denoisers", "architecture": "UNet2DConditionModel", "config": config, "text": 77,
             "controlled": True}  # fmt: skip
    setup = {"weights": "bf16", "autocast": "bf16", "attention": "sdpa", "checkpointing": False,
             "peft": {"method": "controlnet"}}  # fmt: skip
    reply = steps.trace({"model": model, "setup": setup, "point": {"b": 1, "u": 4}, "kind": "train"})
    born, dead = {}, {}
    for index, (value, tag) in enumerate(reply["events"]):
        (born if value >= 0 else dead)[index if value >= 0 else -1 - value] = tag
    kept = {born[birth] for birth, tag in dead.items() if tag.startswith("backward")}
    forward = {tag.partition(":")[2] for tag in kept if tag.startswith("forward")}
    assert not any(where.startswith("inner.down_blocks") for where in forward)
    assert any(where.startswith("inner.up_blocks") for where in forward)
    assert any(where.startswith("control.down_blocks") for where in forward)
