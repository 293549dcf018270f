"""Models of images and text: what stands for an image, what is trained, and what is not known. Without torch."""

from __future__ import annotations

import pytest

from preflight.memory.device.law import catalogue
from preflight.memory.device.law.made import Depth
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import vision_language as pictures
from preflight.memory.device.workloads.image_tokens import IMAGES, Image
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

BASE: dict[str, object] = {"train.batch_size": 2, "train.seq_len": 4096, "train.precision": "bf16-mixed"}
SIDED = ("llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl")
"""Architectures that make more tokens of larger images."""
NAMES = [name for name in catalogue.names() if pictures.knows(catalogue.find(name).architecture)]  # type: ignore[union-attr]


def resolved(name: str, **changes: object) -> Resolved | Unknown:
    return resolve(build({**BASE, "model.name": name, **changes}))


def reason(name: str, **changes: object) -> str:
    found = resolved(name, **changes)
    assert isinstance(found, Unknown)
    return found.words


@pytest.mark.parametrize(
    ("name", "side", "tokens"),
    [
        ("llava-hf/llava-1.5-7b-hf", None, 576),  # (336 / 14)^2
        ("llava-hf/llava-v1.6-mistral-7b-hf", 672, 576 + 48 * 49),  # four tiles, and a token at the end of each row
        ("llava-hf/llava-v1.6-mistral-7b-hf", 336, 576 + 24 * 25),  # a tile of two is padding, which is taken off
        ("Qwen/Qwen2-VL-7B-Instruct", 448, 256),
        ("Qwen/Qwen2.5-VL-3B-Instruct", 450, 256),
        ("Qwen/Qwen3-VL-8B-Instruct", 448, 196),
        ("google/paligemma-3b-pt-448", None, 1024),
        ("google/gemma-3-4b-it", 896, 256),
        ("HuggingFaceM4/idefics2-8b", 980, 5 * 64),
        ("HuggingFaceTB/SmolVLM-Instruct", None, 17 * 81),
        ("HuggingFaceTB/SmolVLM-256M-Instruct", 512, 64),
        ("OpenGVLab/InternVL3-2B-hf", 448, 256),
        ("OpenGVLab/InternVL3-2B-hf", 896, 5 * 256),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", None, 1),
    ],
)
def test_tokens_that_stand_for_an_image(name: str, side: int | None, tokens: int) -> None:
    found = resolved(name, **{"train.image_size": side})
    assert isinstance(found, Resolved), found
    assert found.workload.wire()["spans"] == [tokens]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_of_the_catalogue_has_a_key(name: str) -> None:
    found = resolved(name, **{"train.image_size": 448 if resolved_kind(name) in SIDED else None})
    assert isinstance(found, Resolved), found
    assert found.dims.get("L", 0) > 0 or resolved_kind(name) in pictures.WHOLE


def resolved_kind(name: str) -> str:
    model = catalogue.find(name)
    assert model is not None
    return model.architecture


def test_images_of_a_sample_take_their_tokens_each() -> None:
    found = resolved("llava-hf/llava-1.5-7b-hf", **{"train.images": 3})
    assert isinstance(found, Resolved)
    assert found.workload.wire()["spans"] == [576] * 3
    assert found.workload.wire()["feeds"]["pixel_values"]["shape"] == [3, 3, 336, 336]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("llava-hf/llava-1.5-7b-hf", {"train.seq_len": None}, "train.seq_len is not known (all tokens"),
        ("llava-hf/llava-1.5-7b-hf", {"train.seq_len": 512}, "train.seq_len 512 is less than the 578 tokens"),
        ("llava-hf/llava-1.5-7b-hf", {"train.image_size": 448}, "resizes images to 336 pixels"),
        ("llava-hf/llava-1.5-7b-hf", {"train.images": None}, "train.images"),
        ("llava-hf/llava-1.5-7b-hf", {"train.frozen": ["layers.3"]}, "layers.3 is not a part"),
        ("llava-hf/llava-1.5-7b-hf", {"train.precision": None}, "train.precision"),
        ("llava-hf/llava-1.5-7b-hf", {"train.peft.method": "lora"}, "train.peft.targets is not known"),
        ("Qwen/Qwen2-VL-7B-Instruct", {}, "train.image_size is not known"),
        ("llava-hf/llava-v1.6-mistral-7b-hf", {}, "train.image_size"),
    ],
)
def test_what_is_missing_is_named(name: str, changes: dict[str, object], words: str) -> None:
    assert words in reason(name, **changes)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        (["vision_tower"], ["vision"]),
        (["visual"], ("vision", "projector")),
        (["model.vision_tower", "mm_projector"], ("vision", "projector")),
        (["language_model"], ["language"]),
    ],
)
def test_parts_that_are_frozen(said: list[str], parts: list[str]) -> None:
    found = resolved("llava-hf/llava-1.5-7b-hf", **{"train.frozen": said})
    assert isinstance(found, Resolved)
    assert found.setup.frozen == tuple(parts)


LORA = {"train.peft.method": "lora", "train.peft.targets": ["q_proj"]}


def test_the_code_of_llava_never_trains_its_tower() -> None:
    own, other = resolved("liuhaotian/llava-v1.5-7b"), resolved("llava-hf/llava-1.5-7b-hf")
    assert isinstance(own, Resolved)
    assert isinstance(other, Resolved)
    assert own.setup.frozen == ("vision",)
    assert other.setup.frozen == ()
    adapted = resolved("liuhaotian/llava-v1.5-7b", **LORA)
    assert isinstance(adapted, Resolved)
    assert adapted.setup.frozen == ("vision", "projector")


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [({}, True), ({"train.frozen": []}, False), ({"train.frozen": ["vision"]}, False), (LORA, False)],
)
def test_what_is_trained_is_open_only_where_nothing_decides(changes: dict[str, object], is_open: bool) -> None:
    assert pictures.is_open(build({**BASE, "model.name": "llava-hf/llava-1.5-7b-hf", **changes})) is is_open


def test_flash_attention_takes_packed_images() -> None:
    found = resolved("Qwen/Qwen2-VL-2B-Instruct", **{"train.image_size": 448, "train.attention": "flash"})
    assert isinstance(found, Resolved)
    assert found.workload.varlen
    assert not found.setup.mask


@pytest.mark.parametrize("kind", IMAGES)
def test_every_architecture_has_defaults(kind: str) -> None:
    assert isinstance(IMAGES[kind]({}, 448 if kind in SIDED else None), Image)


def test_layers_of_a_probe_are_few_and_lists_are_cut() -> None:
    config = {"text_config": {"num_hidden_layers": 26, "layer_types": ["a"] * 26, "ids": [1, 2]}}
    depths = (Depth("language_model.layers", "text_config.num_hidden_layers", "L"),)
    cut = pictures.at_depth(config, depths, 6)["text_config"]
    assert cut == {"num_hidden_layers": 6, "layer_types": ["a"] * 6, "ids": [1, 2]}


EXACT = {
    "llava-hf/llava-1.5-7b-hf": 7_063_427_072, "llava-hf/llava-v1.6-mistral-7b-hf": 7_566_747_648,
    "Qwen/Qwen2-VL-2B-Instruct": 2_208_985_600, "Qwen/Qwen2-VL-7B-Instruct": 8_291_375_616,
    "Qwen/Qwen2-VL-72B-Instruct": 73_405_560_320, "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656, "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344, "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808, "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "google/paligemma-3b-pt-224": 2_923_466_480, "google/paligemma2-3b-pt-224": 3_032_242_416,
    "HuggingFaceM4/idefics2-8b": 8_402_768_112, "HuggingFaceTB/SmolVLM-Instruct": 2_246_272_880,
    "HuggingFaceTB/SmolVLM-500M-Instruct": 507_482_304, "HuggingFaceTB/SmolVLM-256M-Instruct": 256_484_928,
    "google/gemma-3-4b-it": 4_300_079_472, "google/gemma-3-12b-it": 12_187_325_040,
    "google/gemma-3-27b-it": 27_432_406_640, "meta-llama/Llama-3.2-11B-Vision": 10_642_941_475,
    "meta-llama/Llama-3.2-11B-Vision-Instruct": 10_670_220_835,
}  # fmt: skip
"""Parameters as the Hub counts them in the published weights (safetensors metadata of the model's page)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_models_have_as_many_parameters_as_published(name: str) -> None:
    """Built by transformers on the meta device."""
    pytest.importorskip("transformers")
    from preflight.tracer import models

    found = resolved(name, **{"train.image_size": 448 if resolved_kind(name) in SIDED else None})
    assert isinstance(found, Resolved), found
    count = sum(p.numel() for p in models.build(found.workload.wire(), found.setup.wire()).parameters())
    model = catalogue.find(name)
    assert model is not None
    figures = catalogue.published(model)
    assert count == EXACT.get(name, count)
    assert figures is not None
    assert abs(count - figures[0]) <= 2 * figures[1]
