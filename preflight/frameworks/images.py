"""Models of the catalogue by name: their type, and of those of images and text in fine-tuning tools which parts stay
frozen, and how large images may be.

Read from LLaMA-Factory's hparams/finetuning_args.py and model_args.py (0.9.5) and ms-swift's Command-line-parameters.md
(3). Both leave the vision tower and the projector frozen unless they are told otherwise, under adapters as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from preflight.memory.device.law.catalogue import find
from preflight.program.arguments import Arguments
from preflight.program.rows import FoundSettings
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.objects import Abstract, CallRecord
from preflight.vocabulary.values import Cause, Const, Unknown, names

Switches = Mapping[str, tuple[str, bool]]
LLAMAFACTORY: Switches = {"vision": ("freeze_vision_tower", True), "projector": ("freeze_multi_modal_projector", True),
                          "language": ("freeze_language_model", False)}  # fmt: skip
SWIFT: Switches = {"vision": ("freeze_vit", True), "projector": ("freeze_aligner", True),
                   "language": ("freeze_llm", False)}  # fmt: skip
LLAMAFACTORY_PIXELS = 768 * 768
"""image_max_pixels, where it is not set."""
FREE_SIDES = ("llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl")
"""Architectures that make more of larger images."""


def llamafactory(args: Arguments, found: FoundSettings) -> None:
    """LLaMA-Factory's switches."""
    image_settings(args, found, "model_name_or_path", LLAMAFACTORY, ("image_max_pixels", LLAMAFACTORY_PIXELS))


def swift(args: Arguments, found: FoundSettings) -> None:
    """ms-swift's switches."""
    image_settings(args, found, "model", SWIFT, ("max_pixels", None))


def image_settings(
    args: Arguments, found: FoundSettings, model: str, switches: Switches, pixels: tuple[str, int | None]
) -> None:
    """`train.frozen` and `train.image_size` of a run whose model sees images. `model`: the key of its name; `pixels`:
    the key of the most pixels that an image may have, and the tool's default."""
    architecture = _sees(args.value(model))
    if architecture is None:
        return
    parts: list[str] = []
    place = None
    for part, (key, default) in switches.items():
        value = args.value(key) if key in args else default
        place = place or args.origin(key)
        if not isinstance(value, bool):
            found.add("train.frozen", Const(Unknown(f"{key} is not true or false", Cause.invalid), args.origin(key)))
            break
        parts += [part] if value else []
    else:
        found.add("train.frozen", Const(tuple(parts), place))
    key, usual = pixels
    most = args.value(key) if key in args else usual
    if architecture in FREE_SIDES and isinstance(most, int) and most > 0:
        found.add("train.image_size", Const(math.isqrt(most), args.origin(key)))


def _sees(name: object) -> str | None:
    """The architecture of a language model that sees images, by the model's name; None for any other model."""
    known = find(name) if isinstance(name, str) else None
    sees = known is not None and known.task == "causal-lm" and "vision_config" in known.config
    return known.architecture if known is not None and sees else None


_OWN_WORDS = ("remote", "timm", "torchvision", "vision-language")
"""Architectures of the catalogue that are no type of transformers; those of diffusers are names of classes."""


def model_type(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`AutoConfig.from_pretrained(name).model_type`, by which programs choose a class; None where it is not known."""
    identity = record.argument("pretrained_model_name_or_path", 0)
    name = ev.value_of(identity) if identity is not None else None
    if isinstance(name, Unknown) and identity is not None:
        ev.chosen_by |= set(names(identity))
    found = find(name) if isinstance(name, str) and not name.startswith((".", "/")) else None
    if found is None or found.architecture in _OWN_WORDS or not found.architecture.islower():
        return None
    return Const(found.architecture, None if identity is None else identity.origin)


MODEL_TYPES: Mapping[str, Hook] = {"transformers.AutoConfig.from_pretrained:model_type": model_type}
