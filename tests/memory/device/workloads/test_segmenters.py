"""Segmenters and models of clips by import target: what they are resolved to, and their laws against direct traces."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from preflight.memory.device.fit.make import verify
from preflight.memory.device.fit.subprocess import TraceError, has_torch, request_traces
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import segmenters as dense
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

JOB: dict[str, object] = {
    "model.target": "torchvision:deeplabv3_resnet50", "train.batch_size": 3, "train.image_size": 128,
}  # fmt: skip


def resolved(**more: object) -> Resolved:
    found = resolve(build({**JOB, **{name.replace("__", "."): value for name, value in more.items()}}))
    assert isinstance(found, Resolved), found
    return found


@pytest.mark.parametrize(
    "target",
    ["segmentation.deeplabv3_resnet50", "segmentation.deeplabv3.deeplabv3_resnet50"],
)
def test_other_spellings_are_the_same_model(target: str) -> None:
    assert resolved(model__target=f"torchvision.models.{target}").workload.filed == resolved().workload.filed


@pytest.mark.parametrize(
    "target", ["timm:resnet50", "torchvision:resnet50", "my.models.Unet", "torchvision:retinanet_resnet50_fpn"]
)
def test_what_others_see_to_is_left_alone(target: str) -> None:
    assert not isinstance(resolved(model__target=target).workload, dense.Segmenter)


def test_weights_change_nothing_and_classes_are_a_dimension() -> None:
    assert resolved(model__kwargs={"weights": "DEFAULT"}).workload.filed == resolved().workload.filed
    assert resolved(model__kwargs={"num_classes": 3}).dims["V"] == 3
    assert resolved(model__kwargs={"aux_loss": True}).workload.filed != resolved().workload.filed


def test_clips_have_the_frames_of_their_weights() -> None:
    clip = resolved(model__target="torchvision:swin3d_t", train__image_size=None)
    assert (clip.workload.counts["frames"], clip.lengths["i"]) == (32, 224)
    short = resolved(model__target="torchvision:r3d_18", train__image_size=None, model__kwargs={"frames": 8})
    assert (short.workload.counts["frames"], short.lengths["i"]) == (8, 112)
    assert "frames" not in short.workload.kwargs


def test_every_side_that_64_divides_has_one_law() -> None:
    assert resolved().workload.extra == resolved(train__image_size=512).workload.extra
    assert resolved(train__image_size=500).workload.extra == "image=500"


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"train.batch_size": None}, "train.batch_size"), ({"train.gradient_checkpointing": True}, "checkpoints")],
)
def test_what_is_missing_or_has_no_law_is_named(changes: dict[str, object], said: str) -> None:
    found = resolve(build({**JOB, **changes}))
    assert isinstance(found, Unknown)
    assert said in found.words


@pytest.mark.slow
@pytest.mark.skipif(not has_torch() or find_spec("torchvision") is not None, reason="needs torch without torchvision")
def test_a_library_that_is_missing_is_named() -> None:
    found = resolved()
    with pytest.raises(TraceError, match="torchvision is not installed"):
        request_traces([found.request("train").at(found.lengths)])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision")
@pytest.mark.parametrize("target", ["torchvision:deeplabv3_resnet50", "torchvision:lraspp_mobilenet_v3_large"])
def test_the_law_is_a_direct_trace_at_another_batch(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_NO_CACHE", "1")
    found = resolved(model__target=target)
    known = laws_for(found, "train")
    assert not isinstance(known, Unknown), known
    dims = {**found.all_dims, "b": 6}
    request: dict[str, Any] = {**found.request("train").at(dims), "warm_up": True}
    (trace,), _ = request_traces([request])
    verify(known.made, trace, dims)
