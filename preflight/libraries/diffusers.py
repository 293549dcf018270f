"""diffusers' example scripts as data: what each leaves on the GPU, and loads anew to generate images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

SCRIPTS = (
    "train_dreambooth_lora_sdxl", "train_text_to_image_lora_sdxl", "train_text_to_image_lora", "train_dreambooth_lora",
    "train_dreambooth_lora_sd3", "train_dreambooth_lora_flux", "train_text_to_image", "train_text_to_image_sdxl",
    "train_dreambooth", "train_controlnet", "train_controlnet_sdxl",
)  # fmt: skip
"""Keys of libraries/diffusers.json, which is read where one of them is started."""


class Script(TypedDict, total=False):
    """What one script does; see the file."""

    method: str | None
    resolution: int
    batch: int
    companions: list[str]
    validating: list[str]
    loads: list[str]
    saved_as: str
    weights_vae: bool


@lru_cache(maxsize=1)
def scripts() -> Mapping[str, Script]:
    """Every script by its name."""
    path = Path(__file__).with_name("diffusers.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    del found["comment"]
    known: Mapping[str, Script] = found
    return known
