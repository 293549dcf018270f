"""diffusers' example scripts, by their flags: `accelerate launch train_dreambooth_lora_sdxl.py --rank 4 ...`.

What each leaves on the GPU, and loads to generate images for validation, is in frameworks/diffusers.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.shared import Found
from preflight.vocabulary.spelling import OPTIMIZERS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

CONTROLNET = "controlnet"
_PRECISIONS = {"no": "fp32", "fp16": "fp16-mixed", "bf16": "bf16-mixed"}
_UNREAD = "--train_text_encoder trains the text encoders, which no law covers"


def diffusers(args: Arguments) -> Found:
    """A script's flags and its defaults; `method` is the script."""
    found = Found()
    script = scripts().get(str(args.value("method")))
    if script is None:
        return found
    found.default("task", "diffusion")
    found.add("model.name", args.get("pretrained_model_name_or_path"))
    batch: Expr = args.get("train_batch_size", script["batch"])
    if args.value("with_prior_preservation") is True:  # an image of the class beside each one
        batch = Op("*", (batch, Const(2)), batch.origin)
    found.add("train.batch_size", batch)
    found.add("train.grad_accum", args.get("gradient_accumulation_steps", 1))
    found.add("train.image_size", args.get("resolution", script["resolution"]))
    found.add("train.gradient_checkpointing", args.get("gradient_checkpointing", False))
    if "mixed_precision" in args:
        found.add("train.precision", spelled(args.get("mixed_precision"), _PRECISIONS))
    found.when_true(args, "allow_tf32", "train.tf32")
    found.when_true(args, "use_ema", "train.copies.ema", 1)
    found.add("data.workers", args.get("dataloader_num_workers", 0))
    _optimizer(args, found)
    method = script["method"]
    if method == CONTROLNET:
        found.add("train.peft.method", Const(method))
        found.default("train.outputs_kept", "loop")  # its residuals have names in the script's loop
    elif method is not None:
        found.add("train.peft.method", Const("dora" if args.value("use_dora") is True else method))
        found.add("train.peft.r", args.get("rank", 4))
        found.add("train.peft.dropout", args.get("lora_dropout", 0.0))
    if "max_sequence_length" in args and "flux" in str(args.value("method")):
        found.add("train.text_len", args.get("max_sequence_length"))
    _beside(args, script, found)
    return found


def _optimizer(args: Arguments, found: Found) -> None:
    given = spelled(args.get("optimizer", "AdamW"), OPTIMIZERS, "other")
    if args.value("use_8bit_adam") is True:
        given = Const("adamw-8bit", args.origin("use_8bit_adam"))
    found.add("train.optimizer", given)


def _beside(args: Arguments, script: Script, found: Found) -> None:
    """The models beside the denoiser, and the images that it generates."""
    prompt = next((key for key in ("validation_prompt", "validation_prompts") if args.some(key)), None)
    names = list(script["companions"])
    if args.value("train_text_encoder") is True:
        found.add("train.companions", Const(Unknown(_UNREAD, Cause.not_modelled), args.origin("train_text_encoder")))
    else:
        names = list(script.get("validating", names)) if prompt is not None else names
        if args.value("pre_compute_text_embeddings") is True:
            names = [one for one in names if not one.startswith("text_encoder")]
        if args.value("cache_latents") is True:
            names = [one for one in names if one != "vae"]
        found.default("train.companions", tuple(_vae(args, script, names)))
    found.default("validation.generates", prompt is not None)
    if prompt is not None:
        place = args.origin(prompt)
        found.add("validation.generates", Const(True, place))
        found.add("validation.loads", Const(tuple(script["loads"]), place))
        found.add("validation.batch_size", Const(1, place))
    if args.value("upcast_before_saving") is True:
        found.add("train.saved_as", Const("fp32", args.origin("upcast_before_saving")))
    elif "saved_as" in script:
        found.default("train.saved_as", script["saved_as"])


def _vae(args: Arguments, script: Script, names: list[str]) -> list[str]:
    """In 16 bits where a VAE is named that can run in them."""
    half = args.value("mixed_precision")
    if not script.get("weights_vae") or "pretrained_vae_model_name_or_path" not in args or half not in ("fp16", "bf16"):
        return names
    return [f"vae:{half}" if one == "vae" else one for one in names]


# diffusers' example scripts as data: what each leaves on the GPU, and loads anew to generate images.

SCRIPTS = (
    "train_dreambooth_lora_sdxl", "train_text_to_image_lora_sdxl", "train_text_to_image_lora", "train_dreambooth_lora",
    "train_dreambooth_lora_sd3", "train_dreambooth_lora_flux", "train_text_to_image", "train_text_to_image_sdxl",
    "train_dreambooth", "train_controlnet", "train_controlnet_sdxl",
)  # fmt: skip
"""Keys of frameworks/diffusers.json, which is read where one of them is started."""


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
