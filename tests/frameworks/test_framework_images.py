"""Models of images and text in LLaMA-Factory's files and ms-swift's: frozen parts, and the largest images."""

from __future__ import annotations

from pathlib import Path

import pytest
from argument_files import read
from programs_as_text import is_unknown, values

from preflight.frameworks import images
from preflight.memory.device.law import catalogue
from preflight.memory.device.workloads.image_tokens import IMAGES
from preflight.vocabulary.values import Value

FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct
stage: sft
finetuning_type: lora
cutoff_len: 2048
per_device_train_batch_size: 1
bf16: true
output_dir: out
template: qwen2_vl
"""


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("", "train.frozen", ("vision", "projector")),
        ("freeze_vision_tower: false\n", "train.frozen", ("projector",)),
        ("freeze_multi_modal_projector: false\nfreeze_language_model: true\n", "train.frozen", ("vision", "language")),
        ("", "train.image_size", 768),
        ("image_max_pixels: 262144\n", "train.image_size", 512),
    ],
)
def test_llamafactory(more: str, field: str, value: Value, tmp_path: Path) -> None:
    assert values(read("x.yaml", FACTORY + more, tmp_path)).get(field) == value


def test_a_switch_that_is_no_switch_is_unknown(tmp_path: Path) -> None:
    found = values(read("x.yaml", FACTORY + "freeze_vision_tower: sometimes\n", tmp_path))
    assert is_unknown(found["train.frozen"])


def test_a_tower_of_one_size_keeps_it(tmp_path: Path) -> None:
    found = values(read("x.yaml", FACTORY.replace("Qwen/Qwen2.5-VL-7B-Instruct", "llava-hf/llava-1.5-7b-hf"), tmp_path))
    assert found["train.frozen"] == ("vision", "projector")
    assert "train.image_size" not in found


def test_models_of_text_have_no_such_parts(tmp_path: Path) -> None:
    found = values(read("x.yaml", FACTORY.replace("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B"), tmp_path))
    assert "train.frozen" not in found
    assert "train.image_size" not in found


def test_models_that_see_images_are_those_whose_steps_are_traced() -> None:
    for name in catalogue.names():
        architecture = catalogue.find(name).architecture
        assert (images._sees(name) is not None) is (architecture in IMAGES), name
