"""Builds denoisers of diffusers (UNets of Stable Diffusion, transformers of SD3, FLUX, DiT, PixArt) and the encoders of
images that they are trained with, and makes their batches.

As diffusers' example scripts do it (examples/text_to_image, examples/dreambooth). `task` "generation": one step of a
pipeline; "decoding": the images at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import controlnets
from .denoising_steps import Decoding, Denoising, Encoding, Generating

VAE_FACTOR = 8
"""Pixels of a latent's side (AutoencoderKL of four blocks)."""
PACKED = 2
"""Side of the squares of latents that FLUX takes for a token (pipelines/flux, _pack_latents)."""
CONTROLNET = "controlnet"
"""The adapter method (`setup["peft"]["method"]`) that adds a ControlNet to a denoiser."""
ENCODERS = ("AutoencoderKL",)
"""The model that encodes images to latents, without a gradient."""


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step of a denoiser or an encoder on meta, in training mode. `model`: {"architecture" (a class of diffusers),
    "config", "text" (tokens of the prompt)}; `setup`: as `models.build` has it.

    Raises ValueError for what cannot be built.
    """
    import diffusers

    diffusers.utils.logging.set_verbosity_error()
    made = getattr(diffusers, model["architecture"], None)
    if made is None:
        raise ValueError(f"diffusers {diffusers.__version__} has no {model['architecture']}")
    with torch.device("meta"):
        inner = made(**{k: v for k, v in model["config"].items() if not k.startswith("_")})
    inner = inner.train().to(dtypes[setup.get("weights", "fp32")])
    if model["architecture"] in ENCODERS:
        return Decoding(inner) if model.get("task") == "decoding" else Encoding(inner)
    if setup.get("attention") == "eager":
        from diffusers.models.attention_processor import AttnProcessor

        inner.set_attn_processor(AttnProcessor())
    if (setup.get("peft") or {}).get("method") == CONTROLNET:
        return _controlled(model, inner, bool(setup.get("autocast")))
    if setup.get("peft"):
        _adapt(inner, setup["peft"], dtypes)
    return Generating(inner, guided(model)) if model.get("task") == "generation" else Denoising(inner)


def _controlled(model: dict[str, Any], inner: nn.Module, autocast: bool) -> nn.Module:
    control = controlnets.beside(inner)
    if model.get("task") == "generation":
        return controlnets.ControlledGenerating(inner, control)
    return controlnets.Controlled(inner, control, autocast)


def guided(model: dict[str, Any]) -> bool:
    """Whether a pipeline runs each image twice, with its prompt and without (classifier-free guidance): all but FLUX's,
    whose guidance is an input (FluxPipeline.__call__, true_cfg_scale 1.0)."""
    return bool(model["architecture"] != "FluxTransformer2DModel")


def _adapt(inner: nn.Module, options: dict[str, Any], dtypes: dict[str, torch.dtype]) -> None:
    """LoRA as the scripts add it; by default adapters are in fp32 (cast_training_params)."""
    import peft

    if options.get("method", "lora") not in ("lora", "dora"):
        raise ValueError(f"adapters of the method {options['method']} in a denoiser are not traced")
    rank = options.get("r", 8)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=rank,
        lora_dropout=0.1 if options.get("dropout") else 0.0,
        target_modules=options["targets"],
        use_dora=options.get("method") == "dora",
    )
    inner.requires_grad_(False)
    with torch.device("meta"):
        peft.inject_adapter_in_model(config, inner)
    for parameter in inner.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtypes[options.get("half") or "fp32"])


def side_of(point: dict[str, int]) -> int:
    """Pixels of an image's side: `u` counts 64 of them."""
    return 64 * point["u"] if "u" in point else point["i"]


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, and u (64 pixels) or i (pixels)."""
    image, batch = side_of(point), point["b"]
    if model.get("task") == "decoding":
        latent = image // VAE_FACTOR
        shape = (batch, model["config"].get("latent_channels", 4), latent, latent)
        return {"latents": torch.zeros(shape, dtype=dtype, device="meta")}
    if model["architecture"] in ENCODERS:
        return {"pixel_values": torch.zeros(batch, 3, image, image, dtype=dtype, device="meta")}
    config, latent = model["config"], image // VAE_FACTOR

    def zeros(*shape: int, of: torch.dtype = dtype) -> torch.Tensor:
        return torch.zeros(*shape, dtype=of, device="meta")

    found = {
        "timesteps": zeros(batch, of=torch.int64),
        "latents": zeros(batch, config.get("in_channels", 4), latent, latent),
    }
    conditions = _CONDITIONS.get(model["architecture"])
    if conditions is None:
        raise ValueError(f"what {model['architecture']} is conditioned on is not known")
    generates = model.get("task") == "generation"
    rows = 2 * batch if generates and guided(model) else batch
    found |= {"timesteps": zeros(rows, of=torch.int64)}
    found = {**found, **conditions(config, rows, latent, model.get("text") or 0, zeros)}
    if generates and found["latents"].shape[0] != batch:
        found["latents"] = found["latents"][:batch]
    if model.get("controlled"):
        found["cond"] = controlnets.image(image, rows, dtype)
    return found


Zeros = Callable[..., torch.Tensor]


def _unet(config: dict[str, Any], batch: int, _: int, text: int, zeros: Zeros) -> dict[str, Any]:
    found: dict[str, Any] = {"encoder_hidden_states": zeros(batch, text, config.get("cross_attention_dim", 1280))}
    if config.get("addition_embed_type") == "text_time":
        sizes = 6  # original size, crop and target size (train_text_to_image_sdxl.py, compute_time_ids)
        width = config["projection_class_embeddings_input_dim"] - sizes * config["addition_time_embed_dim"]
        found["added_cond_kwargs"] = {"text_embeds": zeros(batch, width), "time_ids": zeros(batch, sizes)}
    return found


def _sd3(config: dict[str, Any], batch: int, _: int, text: int, zeros: Zeros) -> dict[str, Any]:
    return {
        "encoder_hidden_states": zeros(batch, text, config["joint_attention_dim"]),
        "pooled_projections": zeros(batch, config.get("pooled_projection_dim", 2048)),
    }


def _flux(config: dict[str, Any], batch: int, latent: int, text: int, zeros: Zeros) -> dict[str, Any]:
    tokens = (latent // PACKED) ** 2
    found = {
        **_sd3(config, batch, latent, text, zeros),
        "latents": zeros(batch, tokens, config.get("in_channels", 64)),
        "timesteps": zeros(batch),
        "txt_ids": zeros(text, 3),
        "img_ids": zeros(tokens, 3),
    }
    found["pooled_projections"] = zeros(batch, config.get("pooled_projection_dim", 768))
    return {**found, "guidance": zeros(batch)} if config.get("guidance_embeds") else found


def _dit(_: dict[str, Any], batch: int, __: int, ___: int, zeros: Zeros) -> dict[str, Any]:
    return {"class_labels": zeros(batch, of=torch.int64)}


def _pixart(config: dict[str, Any], batch: int, _: int, text: int, zeros: Zeros) -> dict[str, Any]:
    more: dict[str, Any] = {"resolution": None, "aspect_ratio": None}
    if config.get("sample_size", 128) == 128 and config.get("use_additional_conditions") is not False:
        more = {"resolution": zeros(batch, 2), "aspect_ratio": zeros(batch, 1)}
    return {
        "encoder_hidden_states": zeros(batch, text, config.get("caption_channels", 4096)),
        "encoder_attention_mask": zeros(batch, text),
        "added_cond_kwargs": more,
    }


_CONDITIONS: dict[str, Callable[[dict[str, Any], int, int, int, Zeros], dict[str, Any]]] = {
    "UNet2DConditionModel": _unet,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "DiTTransformer2DModel": _dit,
    "PixArtTransformer2DModel": _pixart,
}
