"""Denoisers: shipped laws and what lies beside them, without torch; the tapes against direct traces, with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shipped import estimate as estimated
from shipped import laws_for, prepare, resolve

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.workloads import denoisers, pipelines
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

SD15 = "stable-diffusion-v1-5/stable-diffusion-v1-5"
UNSPLIT = 2**20
"""What a block may be larger than what was asked for."""
LORA: dict[str, object] = {
    "model.name": SD15, "train.batch_size": 2, "train.precision": "fp16-mixed", "train.peft.method": "lora",
    "train.gradient_checkpointing": True,
}  # fmt: skip


def device(**changes: object) -> DeviceEstimate:
    found = estimated(build({**LORA, **{name.replace("__", "."): value for name, value in changes.items()}}), None)
    assert isinstance(found, DeviceEstimate), found
    return found


def ready(**changes: object) -> PreparedJob:
    found = prepare(build({**LORA, **{name.replace("__", "."): value for name, value in changes.items()}}))
    assert isinstance(found, PreparedJob), found
    return found


def test_adapters_of_any_rank_at_any_side_have_a_law() -> None:
    small, wide = device(train__peft__r=4), device(train__peft__r=256)
    assert 0 < small.breakdown["optimizer"] < wide.breakdown["optimizer"]
    assert device(train__image_size=768).allocated.expected > device(train__image_size=512).allocated.expected


def test_trainable_parameters_are_the_published_ones() -> None:
    # 797,184: what train_text_to_image_lora.py reports at rank 4 (diffusers' README of LoRA: 3 MB of weights in fp32).
    trainable = [n for n, _, trains in ready(train__peft__r=4).parameters if trains]
    assert sum(trainable) == 797_184


def test_companions_are_weights_in_the_stated_dtype() -> None:
    alone = device(train__companions=[])
    beside = device(train__companions=["text_encoder"])
    count = pipelines.data()["models"][SD15]["companions"]["text_encoder"]["parameters"]
    more = beside.breakdown["weights"] - alone.breakdown["weights"]
    assert 2 * count <= more < 2 * count + UNSPLIT
    wide = device(train__companions=["text_encoder"], train__precision="fp32", train__peft__method=None)
    bare = device(train__companions=[], train__precision="fp32", train__peft__method=None)
    assert 4 * count <= wide.breakdown["weights"] - bare.breakdown["weights"] < 4 * count + UNSPLIT


def test_a_vae_encodes_the_images_of_a_batch() -> None:
    assert "encoding" not in device(train__companions=["text_encoder"]).phases
    one, two = (device(train__companions=["vae"], train__batch_size=b).phases["encoding"] for b in (1, 2))
    assert one < two


def test_what_is_not_said_to_lie_beside_widens_the_interval() -> None:
    unsaid, said = device(), device(train__companions=["vae", "text_encoder"])
    assert unsaid.allocated.expected == said.allocated.expected
    assert unsaid.allocated.low < said.allocated.low
    assert any("train.companions" in note for note in unsaid.notes)
    assert not any("train.companions" in note for note in said.notes)


def test_an_unknown_companion_is_unknown() -> None:
    found = prepare(build({**LORA, "train.companions": ["controlnet"]}))
    assert isinstance(found, Unknown)
    assert "controlnet" in found.words
    assert "text_encoder" in found.words


def test_a_config_with_every_default_has_the_same_law() -> None:
    short = resolve(build(LORA))
    assert isinstance(short, Resolved)
    whole = {**pipelines.data()["defaults"]["UNet2DConditionModel"], **short.workload.config, "_class_name": "UNet",
             "sample_size": 96}  # fmt: skip
    assert denoisers.file_of("UNet2DConditionModel", whole) == short.workload.filed
    assert denoisers.file_of("UNet2DConditionModel", {**whole, "layers_per_block": 3}) != short.workload.filed


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train.batch_size": None}, "train.batch_size"),
        ({"train.image_size": 520}, "multiple of 64"),
        ({"train.quantization.type": "nf4"}, "quantization"),
        ({"train.precision": None}, "train.precision"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], reason: str) -> None:
    found = resolve(build({**LORA, **changes}))
    assert isinstance(found, Unknown)
    assert reason in found.words


def test_attention_of_older_gpus_has_the_same_law() -> None:
    old, new = (resolve(build(LORA), find_gpu(name)) for name in ("T4", "RTX 3090"))
    assert isinstance(old, Resolved)
    assert isinstance(new, Resolved)
    assert old.setup == new.setup


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_kernels_of_attention_are_alike_at_the_peak(checkpointing: bool) -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    config = {"block_out_channels": [64, 128], "layers_per_block": 1, "cross_attention_dim": 128,
              "down_block_types": ["CrossAttnDownBlock2D"] * 2,
              "up_block_types": ["CrossAttnUpBlock2D"] * 2}  # fmt: skip
    model = {"kind": "denoisers", "architecture": "UNet2DConditionModel", "config": config, "text": 77}
    peaks = []
    for attention in ("sdpa", "efficient"):
        setup = {"attention": attention, "checkpointing": checkpointing, "weights": "fp32", "autocast": "bf16"}
        reply = steps.trace({"model": model, "setup": setup, "point": {"b": 2, "u": 8}, "kind": "train"})
        peaks.append(_peak(reply))
    assert peaks[0] == pytest.approx(peaks[1], rel=1e-6)


def test_adapters_freeze_weights_in_16_bits_under_mixed_precision() -> None:
    assert {size for _, size, trains in ready().parameters if not trains} == {2}
    assert {size for _, size, trains in ready().parameters if trains} == {4}
    full = ready(train__peft__method=None)
    assert {size for _, size, _ in full.parameters} == {4}


def _peak(reply: dict[str, Any]) -> int:
    live = peak = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        peak = max(peak, live)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("vae", ["sd", "sd3"])
@pytest.mark.parametrize("dims", [{"b": 1, "u": 8}, {"b": 5, "u": 13}])
def test_an_encoders_law_is_the_trace(vae: str, dtype: str, dims: dict[str, int]) -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    some = resolve(build(LORA))
    assert isinstance(some, Resolved)
    one = pipelines.Companion(0, "weights", "vae", dtype, pipelines.data()["vaes"][vae])
    asked = some.workload.encoder(some, one)
    law = laws_for(asked, "eval")
    assert not isinstance(law, Unknown), law
    reply = steps.trace(asked.request("eval").at(dims))
    assert law.plain.peak(dims).bytes == _peak(json.loads(json.dumps(reply)))
    counted = sum(n for n, _, _ in law.made.parameters.sizes({}, dims))
    assert counted == next(
        row["companions"]["vae"]["parameters"]
        for row in pipelines.data()["models"].values()
        if row["companions"]["vae"]["vae"] == vae
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "dims"),
    [
        ({}, {"b": 3, "u": 8, "r": 16}),
        ({}, {"b": 1, "u": 12, "r": 4}),
        ({"train.peft.method": None}, {"b": 2, "u": 16}),
        ({"train.peft.method": None, "train.gradient_checkpointing": False}, {"b": 4, "u": 8}),
        ({"train.gradient_checkpointing": False}, {"b": 2, "u": 8, "r": 128}),
    ],
)
def test_a_denoisers_law_is_the_trace(changes: dict[str, object], dims: dict[str, int]) -> None:
    pytest.importorskip("diffusers")
    pytest.importorskip("peft")
    from preflight.tracer import steps

    asked = resolve(build({**LORA, **changes}))
    assert isinstance(asked, Resolved)
    law = laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    reply = steps.trace({**asked.request("train").at(dims), "warm_up": True})
    assert Law(law.made.tape).peak(dims).bytes == pytest.approx(_peak(reply), rel=0.001)
    assert sum(n for n, _, _ in law.made.parameters.sizes({}, dims)) == sum(row[2] for row in reply["parameters"])


@pytest.mark.slow
def test_counts_of_text_encoders_are_those_of_their_configs() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    clip, t5 = transformers.CLIPTextConfig, transformers.T5Config
    with torch.device("meta"):
        small = clip(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                     projection_dim=768)  # fmt: skip
        big = clip(hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20,
                   projection_dim=1280)  # fmt: skip
        middle = clip(hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16)
        xxl = t5(d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu")
        built = [transformers.CLIPTextModel(small), transformers.CLIPTextModelWithProjection(big),
                 transformers.CLIPTextModel(middle), transformers.T5EncoderModel(xxl),
                 transformers.CLIPTextModelWithProjection(small)]  # fmt: skip
    counts = {sum(p.numel() for p in model.parameters()) for model in built}
    stated = {
        row["parameters"]
        for model in pipelines.data()["models"].values()
        for name, row in model["companions"].items()
        if name != "vae"
    }
    assert stated == counts


def test_without_a_law_the_bound_is_of_weights_in_16_bits() -> None:
    found = device(model__name="PixArt-alpha/PixArt-XL-2-512x512", train__image_size=512, train__companions=None)
    assert found.verdict == "unknown"
    wide = device(model__name="PixArt-alpha/PixArt-XL-2-512x512", train__image_size=512, train__weights_dtype="fp32")
    assert 2 * found.breakdown["weights"] == wide.breakdown["weights"]


def test_companions_lie_beside_every_way_of_sharding() -> None:
    one = ready(train__peft__method="none", parallel__strategy="fsdp", parallel__gpus_per_node=2,
                parallel__ranks_per_node=2, train__companions=["vae"])  # fmt: skip
    assert one.alternatives
    held = [sum(each.nbytes for each in some.rank.storages if isinstance(each, pipelines.Companion))
            for some in (one, *one.alternatives)]  # fmt: skip
    assert min(held) == max(held) > 0
