"""Segmentation, detection, video, captions, sound of transformers: what they are resolved to, and tapes of them against
direct traces at another batch."""

from __future__ import annotations

import pytest

from preflight.memory.device.estimate import estimate as estimated
from preflight.memory.device.fit.make import verify
from preflight.memory.device.fit.subprocess import has_torch, request_traces
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import perception
from preflight.memory.device.workloads import perception_table as perception_kinds
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Unknown

NARROW = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4],
          "decoder_hidden_size": 16}  # fmt: skip
SEGFORMER: dict[str, object] = {
    "model.architecture": "segformer", "model.config": NARROW, "task": "other", "train.batch_size": 4,
    "train.image_size": 128,
}  # fmt: skip
SMALL = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
         "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_queries": 10,
         "backbone_config": {"model_type": "resnet", "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1],
                             "embedding_size": 8, "out_features": ["stage4"]}}  # fmt: skip
NARROW_VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, dict[str, object]] = {
    "segformer": SEGFORMER,
    "detr": {"model.architecture": "detr", "model.config": SMALL, "train.image_size": 64, "train.target_len": 3},
    "vit_mae": {"model.architecture": "vit_mae", "model.config": {**NARROW_VIT, "decoder_hidden_size": 32,
                "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 64}},
    "videomae": {"model.architecture": "videomae", "model.config": {**NARROW_VIT, "image_size": 32, "num_frames": 4}},
    "yolos": {"model.architecture": "yolos", "model.config": {**NARROW_VIT, "image_size": [64, 96],
              "num_detection_tokens": 7}},
    "sew": {"model.architecture": "sew", "model.config": {"hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 64, "conv_dim": [16] * 13}, "train.seq_len": 16_000,
            "train.target_len": 9},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_NO_CACHE", "1")


def resolved(changes: dict[str, object], **more: object) -> Resolved:
    found = resolve(build({"train.batch_size": 2, "task": "other", **changes, **more}))
    assert isinstance(found, Resolved), found
    return found


def reason(changes: dict[str, object]) -> str:
    found = resolve(build({"train.batch_size": 2, "task": "other", **changes}))
    assert isinstance(found, Unknown), found
    return found.words


def test_every_class_has_a_recipe_that_says_what_it_needs() -> None:
    recipes = {recipe for classes in perception_kinds.CLASSES.values() for recipe in classes.values()}
    assert recipes <= set(perception_kinds.NEEDS)
    assert set(perception_kinds.PADDED) <= set(perception_kinds.NEEDS)
    assert not set(perception_kinds.REFUSED) & set(perception_kinds.CLASSES)


@pytest.mark.parametrize(
    ("fields", "trained"),
    [
        ({"model.architecture": "segformer", "task": "other"}, "SegformerForSemanticSegmentation"),
        ({"model.architecture": "segformer", "task": "image-classification"}, "image-classification"),
        ({"model.architecture": "mobilenet_v2", "task": "image-classification"}, "image-classification"),
        ({"model.architecture": "rt_detr"}, "RTDetrForObjectDetection"),
        ({"model.architecture": "videomae", "model.config": {"architectures": ["VideoMAEForPreTraining"]}},
         "VideoMAEForPreTraining"),
        ({"model.architecture": "whisper", "task": "sequence-classification", "model.config": {}},
         "audio-classification"),
        ({"model.architecture": "sew", "task": "sequence-classification", "train.seq_len": 16_000},
         "SEWForSequenceClassification"),
    ],
)  # fmt: skip
def test_the_class_is_the_configs_or_the_tasks_or_the_usual_one(fields: dict[str, object], trained: str) -> None:
    assert resolved({"model.config": {}, **fields}).workload.wire()["class"] == trained


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model.architecture": "owlvit", "model.config": {}}, "computes no loss"),
        ({"model.architecture": "layoutlmv2", "model.config": {}}, "detectron2"),
        ({"model.architecture": "mamba2", "model.config": {}, "task": "causal-lm"}, "separate CUDA kernel"),
        ({"model.architecture": "sew", "model.config": {}}, "samples of sound"),
        ({"model.architecture": "layoutlmv3", "model.config": {}}, "train.seq_len is not known (tokens)"),
        ({"model.architecture": "vision-encoder-decoder", "model.config": {}}, "train.target_len"),
        ({"model.architecture": "blip", "model.config": {}}, "train.text_len"),
        ({"model.architecture": "detr", "model.config": {}, "train.batch_size": None}, "train.batch_size"),
        ({"model.architecture": "detr", "model.config": {}, "train.precision": None}, "train.precision"),
    ],
)
def test_what_is_missing_or_refused_is_named(fields: dict[str, object], said: str) -> None:
    assert said in reason(fields)


def test_without_torch_what_has_no_law_is_unknown() -> None:
    found = estimated(build({**SEGFORMER, "train.image_size": 100}), None, SHIPPED_ONLY)
    assert isinstance(found, Unknown)
    assert "no law is shipped for segformer" in found.words


def test_sides_of_detectors_are_those_of_their_processors() -> None:
    assert resolved({"model.architecture": "detr", "model.config": {}}).workload.counts == {"wide": 1333}
    square = resolved({"model.architecture": "rt_detr", "model.config": {}})
    assert square.lengths["i"] == 640
    own = resolved({"model.architecture": "yolos", "model.config": {"image_size": [512, 864]}})
    assert (own.lengths["i"], own.workload.counts["wide"]) == (512, 864)


def test_laws_of_every_side_are_functions_of_64_pixels_and_classes() -> None:
    found = resolved(SEGFORMER)
    assert (found.lengths["u"], found.dims["V"]) == (2, perception_kinds.ADE20K)
    assert "i" not in found.lengths
    other = resolved(SEGFORMER, **{"train.image_size": 512})
    assert other.workload.filed == found.workload.filed
    assert resolved(SEGFORMER, **{"train.image_size": 100}).lengths["i"] == 100


def test_sam_trains_its_decoder_where_nothing_is_said() -> None:
    plain: dict[str, object] = {"model.architecture": "sam", "model.config": {}}
    assert resolved(plain).setup.frozen == perception.SAM_FROZEN
    assert resolved(plain, **{"train.frozen": []}).setup.frozen == ()


@pytest.mark.slow
@pytest.mark.skipif(not has_torch(), reason="needs torch")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_the_law_is_a_direct_trace_at_another_batch(kind: str, precision: str) -> None:
    found = resolved(KINDS[kind], **{"train.precision": precision})
    known = laws_for(found, "train")
    assert not isinstance(known, Unknown), known
    dims = {**found.all_dims, "b": 6}
    (trace,), _ = request_traces([found.request("train").at(dims)])
    verify(known.made, trace, dims)


@pytest.mark.slow
@pytest.mark.skipif(not has_torch(), reason="needs torch")
def test_objects_that_are_not_stated_are_cocos_at_most() -> None:
    job = {**KINDS["detr"], "train.batch_size": 2}
    stated = estimated(build(job), None)
    unsaid = estimated(build({k: v for k, v in job.items() if k != "train.target_len"}), None)
    assert isinstance(stated, DeviceEstimate)
    assert isinstance(unsaid, DeviceEstimate)
    assert any("train.target_len" in note for note in unsaid.notes)
    assert unsaid.requested.low <= stated.requested.expected
