"""diffusers: models that stay on the GPU with the trained one, which tables/diffusers.toml cannot express."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from preflight.program.arguments import Arguments
from preflight.program.rows import FoundSettings
from preflight.vocabulary.values import Cause, Const, Unknown

_UNREAD = "--train_text_encoder trains the text encoders: no memory law covers that"


def completed(args: Arguments) -> Arguments:
    """The arguments with the defaults of the script that runs."""
    script = scripts().get(str(args.value("method")))
    if script is None:
        return Arguments({})
    own = {"train_batch_size": script["batch"], "resolution": script["resolution"], "adapter": script["method"]}
    return args.completed({}, own)


def companions(args: Arguments, found: FoundSettings) -> None:
    """Models on the GPU besides the denoiser, and the images that it generates."""
    script = scripts()[str(args.value("method"))]
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


def _vae(args: Arguments, script: TrainingScript, names: list[str]) -> list[str]:
    """The VAE is kept in 16 bits if a VAE is named that can run in 16 bits."""
    half = args.value("mixed_precision")
    if not script.get("weights_vae") or "pretrained_vae_model_name_or_path" not in args or half not in ("fp16", "bf16"):
        return names
    return [f"vae:{half}" if one == "vae" else one for one in names]


class TrainingScript(TypedDict, total=False):
    """The properties of one script; diffusers.json explains the keys."""

    method: str | None
    resolution: int
    batch: int
    companions: list[str]
    validating: list[str]
    loads: list[str]
    saved_as: str
    weights_vae: bool


@lru_cache(maxsize=1)
def scripts() -> Mapping[str, TrainingScript]:
    """Every script by its name."""
    known: dict[str, TrainingScript] = json.loads(Path(__file__).with_name("diffusers.json").read_bytes())
    del known["comment"]
    return known
