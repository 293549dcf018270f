"""Image models: workspaces, what benchmarking leaves, contexts, batches in waiting, and public runs."""

from __future__ import annotations

import pytest
import shipped as device
from shipped import laws_for, prepare, resolve

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law import store
from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.tape import WORKSPACE, without_workspaces
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.optimizers import with_weight_decay
from preflight.memory.device.step import convolution
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effects import waiting
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Replay, Segment
from preflight.memory.device.workloads import image_models as images
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.optimizer import Step
from preflight.vocabulary.tracing import TRACE

MIB = 2**20
RESNET = {
    "model.target": "timm:resnet18",
    "train.batch_size": 64,
    "train.precision": "fp32",
    "train.optimizer": "sgd-momentum",
}
A100 = "A100 40GB"


def job(**changes: object) -> Job:
    return build({**RESNET, **{k.replace("__", "."): v for k, v in changes.items()}})


def estimate(gpu: str = A100, **changes: object) -> DeviceEstimate:
    found = device.estimate(job(**changes), find_gpu(gpu))
    assert isinstance(found, DeviceEstimate), found
    return found


def resolved(**changes: object) -> Resolved:
    found = resolve(job(**changes))
    assert isinstance(found, Resolved), found
    return found


def test_without_workspaces_every_other_event_stays() -> None:
    tape = laws_for(resolved(), "train").made.tape  # type: ignore[union-attr]
    bare = without_workspaces(tape)
    sizes = tape.values({"b": 3, "i": 224})
    births: dict[int, int | None] = {}
    kept: list[tuple[str, int | None, int]] = []
    spaces = 0
    for kind, birth, size, mark, _ in expand(tape, {"b": 3}):
        if WORKSPACE in mark:
            spaces += 1
            births[birth] = None
        elif kind == "b":
            births[birth] = len([b for b in births.values() if b is not None])
            kept.append((kind, births[birth], sizes[size]))
        elif births[birth] is not None:
            kept.append((kind, births[birth], 0))
    assert spaces == 17  # the convolutions of a ResNet-18 that are larger than 1x1
    found = [(kind, birth, sizes[size] if kind == "b" else 0) for kind, birth, size, _, _ in expand(bare, {"b": 3})]
    assert found == kept


def test_channels_last_needs_no_workspaces() -> None:
    plain = laws_for(resolved(), "train").plain.peak({"b": 64, "i": 224}).bytes  # type: ignore[union-attr]
    ordered = laws_for(resolved(train__channels_last=True), "train")
    assert ordered.plain.peak({"b": 64, "i": 224}).bytes <= plain  # type: ignore[union-attr]
    assert all("c" not in e[3] for e in expand(ordered.made.tape, {"b": 1}))  # type: ignore[union-attr]


def test_benchmarking_gives_the_cache_back_before_each_convolution() -> None:
    #         a large block dies, then a convolution runs: with benchmarking the block is not kept
    events = (("b", 0, 64 * MIB, 1, "forward", ""), ("d", 0, 64 * MIB, 1, "forward", ""),
              ("b", 1, 80 * MIB, 5, "backward", "c"), ("d", 1, 80 * MIB, 5, "backward", "c"))  # fmt: skip
    reserved = {}
    for benchmarking in (False, True):
        replay = Replay(CachingAllocator())
        replay.run(Segment.listed(events), benchmarking=benchmarking)
        reserved[benchmarking] = replay.result().reserved
    assert reserved == {False: 144 * MIB, True: 80 * MIB}


def test_who_benchmarks() -> None:
    assert convolution.benchmarks(job(), resolved())  # timm's train.py
    other = {"model__target": "torchvision:resnet18"}
    assert not convolution.benchmarks(job(**other), resolved(**other))
    assert convolution.benchmarks(job(train__cudnn_benchmark=True, **other), resolved(**other))


PLAIN = Interval(500 * MIB, 530 * MIB, 540 * MIB)


def test_a_context_of_unknown_software_may_be_either() -> None:
    found = convolution.context(job(), find_gpu(A100), PLAIN)
    assert found.low == PLAIN.low
    assert found.low < found.expected < found.high
    assert found.expected > 3 * PLAIN.expected


@pytest.mark.parametrize(
    ("software", "lazy"),
    [
        ({"torch": "2.4.1"}, True),
        ({"torch": "1.12.1+cu113"}, False),
        ({"cuda": "12.1"}, True),
        ({"torch": ">=2"}, False),
    ],
)
def test_versions_say_which_kernels_are_loaded(software: dict[str, str], lazy: bool) -> None:
    found = convolution.context(build({**RESNET, "software": software}), find_gpu(A100), PLAIN)
    assert (found.expected == PLAIN.expected) is lazy
    assert found.high > PLAIN.high


def test_where_nothing_was_measured_the_plain_context_is_expected() -> None:
    assert convolution.context(job(), find_gpu("RTX 3090"), PLAIN).expected == PLAIN.expected
    assert convolution.context(job(), None, PLAIN).expected == PLAIN.expected


def test_what_is_expected_of_the_context_is_said() -> None:
    assert any("software.torch" in note for note in estimate().notes)
    assert not any("software.torch" in note for note in estimate(machine__context=MIB).notes)
    assert not any("software.torch" in note for note in estimate("RTX 3090").notes)


def test_a_stated_context_is_taken_as_it_is() -> None:
    found = estimate(machine__context=700 * MIB)
    assert found.breakdown["context"] == 700 * MIB


@pytest.mark.parametrize(
    ("target", "size"),
    [("timm:inception_v3", 299), ("timm:resnet50.a1_in1k", 224), ("timm:vit_base_patch16_384.augreg_in1k", 384),
     ("torchvision:efficientnet_b1", 240), ("torchvision:resnet18", 224), ("my.package.Net", 224)],
)  # fmt: skip
def test_the_size_that_a_model_was_made_for(target: str, size: int) -> None:
    assert images.usual_size(target) == size
    assert resolved(model__target=target).lengths["i"] == size
    assert resolved(model__target=target, train__image_size=160).lengths["i"] == 160


def test_batches_that_wait() -> None:
    batch = 3 * 224 * 224 * 4 * 64
    assert sum(waiting(resolved(), {"b": 64, "i": 224})) == round(2.25 * batch)
    other = resolved(model__target="torchvision:resnet18")
    assert waiting(other, {"b": 64, "i": 224}) == []  # a plain loop has one batch when the peak is there


def test_decay_copies_all_gradients_at_once() -> None:
    assert with_weight_decay(Step((40, 40), ()), [(10, 4), (5, 4)]).temporary == 60
    listed, fused = (prepare(job(train__optimizer_impl=how, train__optimizer="sgd")) for how in ("foreach", "fused"))
    assert isinstance(listed, PreparedJob)
    assert isinstance(fused, PreparedJob)
    assert listed.optimizer.temporary == 4 * sum(n for n, _ in listed.trainable)
    assert fused.optimizer.temporary == 0


def test_one_law_serves_for_other_weights_and_classes() -> None:
    keys = {store.key_of(resolved(model__kwargs=kwargs), "train")
            for kwargs in (None, {"pretrained": True}, {"num_classes": 10}, {"weights": "DEFAULT"})}  # fmt: skip
    assert len(keys) == 1
    assert store.key_of(resolved(model__kwargs={"drop_path_rate": 0.1}), "train") not in keys
    assert store.key_of(resolved(model__target="timm:resnet18.a1_in1k"), "train") in keys


def test_a_name_is_no_path() -> None:
    assert store.load(store.LawKey("../laws/bert", "x")) is None


@pytest.mark.parametrize(
    ("model", "measured"),
    [("resnet18", {8: 2153, 32: 3291, 128: 7269}), ("resnet50", {8: 2875, 32: 5229, 128: 15169}),
     ("mobilenetv3_large_100", {8: 2203, 32: 3701, 128: 8739}), ("vit_large_patch16_224", {8: 7617, 32: 15345}),
     ("vgg16", {8: 4425, 32: 7507}), ("efficientnet_b0", {8: 2587, 128: 13987}), ("test_vit", {8: 1731, 128: 2151})],
)  # fmt: skip
def test_against_public_runs(model: str, measured: dict[int, int]) -> None:
    """nvidia-smi's maximum in MiB under timm's train.py on an A100 40GB (itu-rad/GPUMemNet)."""
    for batch, mib in measured.items():
        found = estimate(model__target=f"timm:{model}", train__batch_size=batch).process
        assert found.expected / MIB == pytest.approx(mib, rel=0.1), (model, batch)
        assert found.low / MIB <= mib <= found.high / MIB, (model, batch)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["timm-resnet18", "timm-mobilenetv3_large_100", "torchvision-resnet50"])
@pytest.mark.parametrize("batch", [1, 6])
def test_shipped_laws_against_traces(family: str, batch: int) -> None:
    from preflight.memory.device.fit.make import verify
    from preflight.tracer.steps import trace

    library, _, name = family.partition("-")
    pytest.importorskip(library)
    side = images.usual_size(f"{library}:{name}")
    for key in store.keys(family):
        if not key.endswith(f"image={side}"):
            continue
        law = store.load(store.LawKey(family, key))
        assert law is not None
        task, kind, precision, *_ = key.split(" ")
        weights, _, autocast = precision.partition("/")
        setup = {"weights": weights, "autocast": None if autocast == "plain" else autocast, "attention": "sdpa"}
        point = {"b": batch, "i": side}
        model = {"target": f"{library}:{name}", "kwargs": {}, "task": task}
        verify(law, trace({"model": model, "setup": setup, "point": point, "kind": kind}), point)


def test_attention_that_is_written_out_is_traced_so() -> None:
    pytest.importorskip("torch")
    asked = {"model__target": "timm:vit_base_patch16_224", "train__attention": "eager"}
    assert resolved(**asked).setup.attention == "math"  # shipped laws have none: it is unknown without a trace
    found = resolve(job(**asked), tracing=TRACE)
    assert isinstance(found, Resolved)
    assert found.setup.attention == "math"
    asked["model__target"] = "timm:resnet50"
    assert resolved(**asked).setup.attention == "sdpa"  # it has no attention
    assert resolved(model__target="timm:vit_base_patch16_224").setup.attention == "sdpa"
