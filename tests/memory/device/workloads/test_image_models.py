"""Image models by their names, and at the sides that their laws hold for."""

from __future__ import annotations

import pytest
import shipped as device
from shipped import resolve

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law import store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import target_of
from preflight.memory.device.step import intervals
from preflight.memory.device.workloads import image_models as images
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

MIB = 2**20


def job(**changes: object) -> Job:
    plain = {"train.batch_size": 32, "train.precision": "fp32", "train.optimizer": "sgd-momentum"}
    return build({**plain, **{k.replace("__", "."): v for k, v in changes.items()}})


def estimate(**changes: object) -> DeviceEstimate:
    found = device.estimate(job(**changes), find_gpu("A100 40GB"))
    assert isinstance(found, DeviceEstimate), found
    return found


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("timm:resnet50", "timm:resnet50"),
        ("timm/resnet50.a1_in1k", "timm:resnet50.a1_in1k"),
        ("hf-hub:timm/resnet50.a1_in1k", "timm:resnet50.a1_in1k"),
        ("hf_hub:timm/vit_base_patch16_224.augreg_in21k", "timm:vit_base_patch16_224.augreg_in21k"),
        ("timm:hf_hub:timm/resnet50.a1_in1k", "timm:resnet50.a1_in1k"),
        ("https://huggingface.co/timm/resnet50.a1_in1k/", "timm:resnet50.a1_in1k"),
        ("timm.models.resnet50", "timm:resnet50"),
        ("timm.models.resnet.resnet50", "timm:resnet50"),
        ("vit_base_patch16_224.augreg_in21k", "timm:vit_base_patch16_224.augreg_in21k"),
        ("torchvision:resnet50", "torchvision:resnet50"),
        ("torchvision.models.resnet50", "torchvision:resnet50"),
        ("torchvision.models.resnet.resnet50", "torchvision:resnet50"),
        ("torchvision.models.detection.fasterrcnn_resnet50_fpn", None),
        ("torchvision.models.get_model", None),
        ("timm.create_model", None),
        ("my.package.Net", None),
        ("bert-base-uncased", None),
        ("../laws/timm-resnet50", None),
        ("", None),
    ],
)
def test_a_model_of_a_library_by_any_of_its_spellings(name: str, target: str | None) -> None:
    assert target_of(name) == target


@pytest.mark.parametrize("field", ["model__name", "model__target"])
@pytest.mark.parametrize("spelling", ["timm:resnet50", "timm/resnet50.a1_in1k", "hf-hub:timm/resnet50.tv2_in1k"])
def test_spellings_share_a_law(field: str, spelling: str) -> None:
    found = resolve(job(**{field: spelling}))
    assert isinstance(found, Resolved)
    assert store.key_of(found, "train").family == "timm-resnet50"
    assert store.load(store.key_of(found, "train")) is not None


def test_a_tag_brings_the_side_of_its_weights() -> None:
    assert images.usual_size("timm:convnext_base") != 384
    assert images.usual_size("timm:convnext_base.fb_in22k_ft_in1k_384") == 384
    assert images.usual_size("timm:convnext_base.fb_in1k") == images.usual_size("timm:convnext_base")


@pytest.fixture
def as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths that are not stretched: what effects do to an interval."""
    monkeypatch.setattr(intervals, "factors", lambda *_: intervals.Factors())


@pytest.mark.usefixtures("as_they_are")
def test_where_benchmarking_is_unknown_the_interval_holds_both() -> None:
    for target, usual in (("torchvision:resnet50", False), ("timm:resnet50", True)):
        found = {value: estimate(model__target=target, train__cudnn_benchmark=value) for value in (None, True, False)}
        assert found[None].reserved.expected == found[usual].reserved.expected
        assert found[None].reserved.low == min(found[True].reserved.low, found[False].reserved.low)
        assert found[None].reserved.high == max(found[True].reserved.high, found[False].reserved.high)
        assert found[True].reserved.expected != found[False].reserved.expected
        assert estimate(model__target=target).reserved == found[usual].reserved


def test_written_out_attention_is_no_fused_one() -> None:
    """A shipped law of fused attention is a third too low for a model whose attention is written out."""
    written = device.estimate(job(model__target="timm:vit_base_patch16_224", train__attention="eager"), None)
    assert isinstance(written, Unknown)
    assert "math" in written.words
    sides = [estimate(model__target="timm:resnet50", train__attention=kind) for kind in ("eager", "sdpa")]
    assert sides[0].process == sides[1].process


@pytest.mark.parametrize(
    ("target", "software", "known"),
    [
        ("timm:vit_base_patch16_224", {"timm": "0.3.2"}, False),
        ("timm:vit_base_patch16_224", {"torch": "1.13.1", "timm": "1.0.9"}, False),
        ("torchvision:vit_b_16", {"torch": "1.13.1"}, False),
        ("timm:vit_base_patch16_224", {"torch": "2.4.0", "timm": "1.0.9"}, True),
        ("timm:vit_base_patch16_224", {}, True),
        ("timm:resnet50", {"torch": "1.7.0", "timm": "0.3.2"}, True),
    ],
)
def test_a_release_that_writes_attention_out_has_no_law(target: str, software: dict[str, str], known: bool) -> None:
    """The scores of every layer are kept then, a third more than the rest of DeiT-B's activations."""
    found = resolve(job(model__target=target, **{f"software.{name}": version for name, version in software.items()}))
    assert isinstance(found, Resolved) is known, found
