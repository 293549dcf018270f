"""What a model takes from its micro-batch as a whole: what must never pass for free of it, then what must."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from preflight.memory.device import batch_statistics as statistics
from preflight.vocabulary.batch_statistics import TABLE
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

Said = Mapping[str, object]

NORMALISES: tuple[Said, ...] = (
    *({"model.name": name} for name in (
        "microsoft/resnet-50", "nvidia/segformer-b0-finetuned-ade-512-512", "yolov8n.pt", "facebook/hubert-base-ls960",
    )),
    *({"model.architecture": kind, "model.config": {}} for kind in (
        "resnet", "regnet", "mobilenet_v2", "mobilevit", "efficientnet", "levit", "cvt", "rt_detr", "clap", "align",
        "wav2vec2-conformer", "upernet", "ResNetForImageClassification", "tvp", "layoutlmv2",
    )),
    *({"model.target": f"timm:{name}"} for name in (
        "resnet50", "resnet50.a1_in1k", "seresnext50_32x4d", "res2net50_26w_4s", "repvgg_a0", "xception41",
        "mobilevit_s", "maxvit_tiny_tf_224", "levit_128", "efficientnet_b0",
    )),
    *({"model.target": f"torchvision:{name}"} for name in (
        "resnet18", "deeplabv3_resnet50", "r3d_18", "regnet_y_400mf", "vgg16_bn", "googlenet", "densenet121",
    )),
    {"model.target": "torchvision.models.resnet50"}, {"model.target": "timm.models.resnet.resnet50"},
    {"model.target": "ultralytics:yolo11n-seg"}, {"model.target": "yolov5:yolov5s"},
    {"model.name": "bert-base-uncased", "model.target": "torchvision:resnet50"},
    {"model.architecture": "llava", "model.config": {"vision_config": {"model_type": "mobilenet_v2"}}},
)  # fmt: skip
UNKNOWN: tuple[Said, ...] = (
    {},
    {"model.target": "src.models.Net"},
    {"model.name": "somebody/something"},
    {"model.architecture": "notthere", "model.config": {}},
    {"model.target": "timm:notthere"},
    {"model.target": "segmentation_models_pytorch:Unet"},
    {"model.parameters": 10**9},
    {"model.architecture": "timm_wrapper", "model.config": {}},
)
FREE: tuple[Said, ...] = (
    *({"model.name": name} for name in (
        "gpt2", "bert-base-uncased", "meta-llama/Llama-2-7b-hf", "t5-small", "google/vit-base-patch16-224",
        "openai/whisper-small", "openai/clip-vit-base-patch32", "llava-hf/llava-1.5-7b-hf",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "mistralai/Mixtral-8x7B-v0.1", "facebook/detr-resnet-50", "google/gemma-3-4b-it",
        "stabilityai/stable-diffusion-2-1",
    )),
    {"model.architecture": "llama", "model.config": {}},
    {"model.architecture": "T5ForConditionalGeneration", "model.config": {}},
    {"model.target": "timm:vit_base_patch16_224"}, {"model.target": "timm:convnext_tiny"},
    {"model.target": "torchvision:vit_b_16"}, {"model.target": "torchvision:vgg16"},
    {"model.target": "detectron2:faster_rcnn_R_50_FPN_1x"}, {"model.target": "mmdet:retinanet_r50_fpn"},
    {"model.name": "nvidia/mit-b0", "task": "image-classification"},
    {"model.architecture": "beit", "model.config": {}, "task": "image-classification"},
)  # fmt: skip


@pytest.mark.parametrize("said", NORMALISES, ids=str)
def test_models_with_batch_statistics(said: Said) -> None:
    assert statistics.normalises(build(dict(said))) is True


@pytest.mark.parametrize("said", UNKNOWN, ids=str)
def test_what_is_not_known_is_not_free(said: Said) -> None:
    assert isinstance(statistics.normalises(build(dict(said))), Unknown)


@pytest.mark.parametrize("said", FREE, ids=str)
def test_models_without_batch_statistics(said: Said) -> None:
    assert statistics.normalises(build(dict(said))) is False


def test_losses_over_the_whole_micro_batch() -> None:
    def job(kind: str, **config: object) -> object:
        return build({"model.architecture": kind, "model.config": config})

    assert [statistics.compares(job(kind)) for kind in ("clip", "siglip", "xclip", "bert", "wav2vec2")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert [statistics.counts_objects(job(kind)) for kind in ("detr", "mask2former", "vit")] == [True, True, False]
    assert statistics.balances(job("mixtral", output_router_logits=True))
    assert not statistics.balances(job("mixtral"))
    assert statistics.has_experts(job("mixtral"))
    assert not statistics.has_experts(job("llama", output_router_logits=True))


@pytest.mark.parametrize("name", ["resnet", "segformer", "mobilevit", "bert", "llama", "vit", "t5", "convnext", "clip"])
def test_the_table_agrees_with_the_installed_library(name: str) -> None:
    """Models of default size, built on the meta device."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    wanted = statistics.normalises(build({"model.architecture": name, "model.config": {}, "task": "other"}))
    makers = {"segformer": transformers.AutoModelForSemanticSegmentation}
    with torch.device("meta"):
        model = makers.get(name, transformers.AutoModel).from_config(transformers.AutoConfig.for_model(name))
    assert any(getattr(module, "running_var", None) is not None for module in model.modules()) is wanted


@pytest.mark.slow
def test_the_table_is_what_the_installed_library_says(monkeypatch: pytest.MonkeyPatch) -> None:
    import json
    from importlib.metadata import version
    from pathlib import Path

    pytest.importorskip("transformers")
    table = json.loads(TABLE.read_text())
    if version("transformers") != table["made_with"]["transformers"]:
        pytest.skip("the table was made with another release")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    import make_batch_statistics

    assert json.loads(json.dumps(make_batch_statistics.of_transformers())) == table["transformers"]
