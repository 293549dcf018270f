"""The table of kinds of model: whose a model is, and what another kind needs."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from preflight.memory.device.law import store
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.workload import Resolved, Workload, WorkloadRequest
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import registry
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Unknown

MODELS: dict[str, dict[str, object]] = {
    "detectors": {"model.target": "detectron2:faster_rcnn_R50-FPN"},
    "yolo": {"model.target": "yolov8n.pt"},
    "denoisers": {"model.name": "stable-diffusion-v1-5/stable-diffusion-v1-5"},
    "pictures": {"model.name": "llava-hf/llava-1.5-7b-hf", "train.seq_len": 2048, "train.images": 1},
    "dense": {"model.target": "torchvision:deeplabv3_resnet50"},
    "embeddings": {"model.name": "bert-base-uncased", "task": "contrastive", "train.seq_len": 128},
    "perception": {"model.architecture": "segformer", "model.config": {}, "train.image_size": 512},
    "speech": {"model.name": "facebook/wav2vec2-base", "train.seq_len": 16_000},
    "images": {"model.target": "timm:resnet50"},
    "transformers": {"model.name": "bert-base-uncased", "train.seq_len": 128},
}


def test_names_of_no_library_of_detectors_mean_no_target() -> None:
    assert [name for name in ("gpt2", "resnet50", "timm:resnet50", "", "yolov9c") if registry.target_of(name)] == []


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_of_its_kind(kind: str) -> None:
    found = resolve(build({"train.batch_size": 2, "train.precision": "bf16-mixed", **MODELS[kind]}), None, SHIPPED_ONLY)
    assert isinstance(found, Resolved), found
    assert found.workload.kind == kind
    described = found.workload.wire()
    assert described.get("kind", kind) == kind
    assert described.get("filed", found.workload.filed) == store.key_of(found, "train").family or found.family


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"n_layer": None}, "model.config.n_layer of the gpt2 model is not known"),
        ({"num_hidden_layers": None}, "model.config.n_layer of the gpt2 model is not known"),
        ({"n_layer": 0}, "model.config of the gpt2 model gives 0 as a size"),
    ],
)
def test_a_size_that_is_missing_is_named_as_the_family_names_it(config: dict[str, object], words: str) -> None:
    sizes = {"vocab_size": 64, "n_embd": 32, "n_head": 4, "n_inner": None, **config}
    model = {"model.architecture": "gpt2", "model.config": sizes}
    found = resolve(build({"train.batch_size": 2, "train.seq_len": 8, **model}), None, SHIPPED_ONLY)
    assert isinstance(found, Unknown)
    assert found.words == words


def test_kinds_have_names_of_their_own() -> None:
    names = [kind.kind for kind in registry.KINDS]
    assert len({*names}) == len(names)


class Perceptron(Workload, frozen=True):
    """A kind that nobody has thought of."""

    kind: ClassVar[str] = "perceptron"
    width: int

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return asked.architecture == "perceptron"

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved:
        return Resolved(cls(asked.config["width"]), asked.name, "other", {}, {"b": 1}, Setup())

    def wire(self) -> dict[str, Any]:
        return {"kind": self.kind, "width": self.width}

    @property
    def filed(self) -> str:
        return f"perceptron-{self.width}"


def test_another_kind_is_a_class_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", (Perceptron, *registry.KINDS))
    found = resolve(build({"model.architecture": "perceptron", "model.config": {"width": 7}}))
    assert isinstance(found, Resolved)
    assert store.key_of(found, "train").family == "perceptron-7"
    assert found.request("train").at({"b": 3})["model"] == {"kind": "perceptron", "width": 7}
