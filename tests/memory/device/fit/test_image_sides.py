"""Laws of convolutional networks at any side that 32 divides."""

from __future__ import annotations

import random

import pytest
import shipped as device

from preflight.machines.gpus import find_gpu
from preflight.memory.device.fit import image_sides
from preflight.memory.device.law import store
from preflight.memory.device.law.sizes import evaluate
from preflight.memory.device.workloads.image_models import usual_size
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

NETWORKS = ("timm-resnet18", "timm-resnet50", "torchvision-resnet50")


def job(side: int | None, target: str = "timm:resnet50", batch: int = 16) -> Job:
    at = {} if side is None else {"train.image_size": side}
    return build({"model.target": target, "train.batch_size": batch, "train.optimizer": "sgd-momentum", **at})


def test_four_points_give_a_size_back() -> None:
    reader, rng = image_sides.SideReader(), random.Random(3)
    for _ in range(50):
        constant, b, bi, bii = (rng.choice((0, rng.randrange(1, 10**6))) for _ in range(4))
        size = reader.size(tuple(constant + n * (b + bi * i + bii * i * i) for n, i in image_sides.FITTED))
        assert size is not None
        for n, i in ((1, 64), (7, 512), (256, 1024)):
            assert evaluate(size, {"b": n, "i": i}) == constant + n * (b + bi * i + bii * i * i)


@pytest.mark.parametrize("family", NETWORKS)
def test_every_side_has_the_same_law(family: str) -> None:
    keys = store.keys(family)
    for prefix in {key.rpartition(" image=")[0] for key in keys}:
        law = store.load(store.LawKey(family, f"{prefix} {image_sides.ANY}"))
        assert law is not None
        assert all(store.load(store.LawKey(family, f"{prefix} image={side}")) == law for side in image_sides.sides())


def test_another_side_is_answered_without_tracing() -> None:
    found = {side: device.estimate(job(side), find_gpu("A100 40GB")) for side in (None, 224, 256, 448)}
    peaks = {side: one.requested.expected for side, one in found.items() if isinstance(one, DeviceEstimate)}
    assert peaks.keys() == found.keys(), found
    assert peaks[None] == peaks[224] < peaks[256] < peaks[448]


def test_the_largest_allocation_is_spelled_in_pixels() -> None:
    found = device.estimate(job(288), find_gpu("A100 40GB"))
    assert isinstance(found, DeviceEstimate)
    assert found.largest_allocation is not None
    assert f"16 batch x {288 * 288:,} pixels x " in found.largest_allocation.product


def test_maps_grow_with_the_square_of_the_side() -> None:
    key = store.LawKey(
        "timm-resnet50", f"image-classification train fp32/plain sdpa exact stored full {image_sides.ANY}"
    )
    law = store.load(key)
    assert law is not None
    largest = {side: max(law.tape.values({"b": 16, "i": side})) for side in (224, 448)}
    assert largest[448] == 4 * largest[224]


@pytest.mark.parametrize("target", ["timm:resnet50", "torchvision:resnet18", "torchvision:vgg16"])
def test_images_of_one_grain_are_answered_without_tracing(target: str) -> None:
    small, larger = (
        device.estimate(job(side, target, 1024), None) for side in (image_sides.GRAIN, image_sides.SMALLEST)
    )
    assert isinstance(small, DeviceEstimate)
    assert isinstance(larger, DeviceEstimate)
    assert not small.lower_bound
    assert small.requested.expected < larger.requested.expected


@pytest.mark.parametrize("side", [225, 250, 40, 2048])
def test_a_side_that_no_law_was_proved_for_stays_unknown(side: int) -> None:
    assert isinstance(device.estimate(job(side), None), (Unknown, DeviceEstimate))
    found = device.estimate(job(side), None)
    assert isinstance(found, Unknown) or found.lower_bound


@pytest.mark.slow
@pytest.mark.parametrize("family", NETWORKS)
@pytest.mark.parametrize(("batch", "side"), [(1, 96), (3, 320)])
def test_laws_at_other_sides_against_traces(family: str, batch: int, side: int) -> None:
    from preflight.memory.device.fit.make import verify
    from preflight.tracer.steps import trace

    library, _, name = family.partition("-")
    pytest.importorskip(library)
    assert side != usual_size(f"{library}:{name}")
    point = {"b": batch, "i": side}
    for key in store.keys(family):
        if not key.endswith(image_sides.ANY):
            continue
        law = store.load(store.LawKey(family, key))
        assert law is not None
        task, kind, precision, *_ = key.split(" ")
        weights, _, autocast = precision.partition("/")
        setup = {"weights": weights, "autocast": None if autocast == "plain" else autocast, "attention": "sdpa"}
        model = {"target": f"{library}:{name}", "kwargs": {}, "task": task, "image_size": side}
        verify(law, trace({"model": model, "setup": setup, "point": point, "kind": kind}), point)
