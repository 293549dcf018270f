"""Denoisers of diffusers (UNets of Stable Diffusion, transformers of SD3, FLUX, DiT, PixArt) in one training step, and
what encodes images beside them, as diffusers' example scripts do it (examples/text_to_image, examples/dreambooth); a
step of its pipelines that generate (`task` "generation"), and the decoding of images at its end ("decoding")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VAE_FACTOR = 8
"""Pixels of a latent's side (AutoencoderKL of four blocks)."""
PACKED = 2
"""Side of the squares of latents that FLUX takes for a token (pipelines/flux, _pack_latents)."""
CONTROLNET = "controlnet"
"""The way of adapting a denoiser (`setup["peft"]["method"]`) that puts a ControlNet beside it."""
ENCODERS = ("AutoencoderKL",)
"""What encodes images to latents, without a gradient."""


class Output(dict[str, Any]):
    """What a step returns: a loss, and what stays bound beside it."""

    def __init__(self, loss: torch.Tensor, **more: torch.Tensor) -> None:
        super().__init__(more)
        self.loss = loss


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
    from . import controls  # which extend what is here

    control = controls.beside(inner)
    if model.get("task") == "generation":
        return controls.ControlledGenerating(inner, control)
    return controls.Controlled(inner, control, autocast)


def guided(model: dict[str, Any]) -> bool:
    """Whether a pipeline runs each image twice, with its prompt and without (classifier-free guidance): all but FLUX's,
    whose guidance is an input (FluxPipeline.__call__, true_cfg_scale 1.0)."""
    return bool(model["architecture"] != "FluxTransformer2DModel")


def _adapt(inner: nn.Module, options: dict[str, Any], dtypes: dict[str, torch.dtype]) -> None:
    """LoRA as the scripts add it; adapters are in fp32 where nothing else is asked for (cast_training_params)."""
    import peft

    if options.get("method", "lora") not in ("lora", "dora"):
        raise ValueError(f"adapters of the method {options['method']} beside a denoiser are not traced")
    rank = options.get("r", 8)
    config = peft.LoraConfig(r=rank, lora_alpha=rank, lora_dropout=0.1 if options.get("dropout") else 0.0,
                             target_modules=options["targets"], use_dora=options.get("method") == "dora")  # fmt: skip
    inner.requires_grad_(False)
    with torch.device("meta"):
        peft.inject_adapter_in_model(config, inner)
    for parameter in inner.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtypes[options.get("half") or "fp32"])


class Encoding(nn.Module):
    """Images to latents, as scripts do it inside their loop."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: torch.Tensor) -> Output:
        latents = self.inner.encode(pixel_values).latent_dist.sample()
        return Output(latents.mean(), latents=latents)


class Decoding(nn.Module):
    """Latents to images, at the end of a pipeline: the VAE is frozen."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)

    def forward(self, latents: torch.Tensor) -> Output:
        image = self.inner.decode(latents / 2, return_dict=False)[0]
        image = (image * 0.5 + 0.5).clamp(0, 1)  # VaeImageProcessor.denormalize
        return Output(image.mean(), image=image)


class Generating(nn.Module):
    """One step of a pipeline that generates: a prediction for all images at once, then the scheduler's next latents."""

    def __init__(self, inner: nn.Module, guided: bool) -> None:
        super().__init__()
        self.inner, self.guided = inner, guided

    def forward(self, latents: torch.Tensor, timesteps: torch.Tensor, **conditions: Any) -> Output:
        noisy = torch.cat([latents] * 2) if self.guided else latents
        found = self.predict(noisy / 2, timesteps, **conditions)  # scale_model_input
        if found.shape != noisy.shape:
            found = found.chunk(2, dim=1)[0]
        if self.guided:
            without, prompted = found.chunk(2)
            found = without + 5.0 * (prompted - without)
        latents = (latents.float() - found).to(found.dtype)  # scheduler.step
        return Output(latents.mean(), latents=latents)

    def predict(self, noisy: torch.Tensor, timesteps: torch.Tensor, **conditions: Any) -> torch.Tensor:
        found: torch.Tensor = self.inner(noisy, timestep=timesteps, **conditions, return_dict=False)[0]
        return found


class Denoising(nn.Module):
    """Noise on latents, a prediction of it, and the mean squared error in fp32."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, latents: torch.Tensor, timesteps: torch.Tensor, **conditions: Any) -> Output:
        noise = torch.randn_like(latents)
        noisy = latents + noise  # scheduler.add_noise
        found = self.inner(noisy, timestep=timesteps, **conditions, return_dict=False)[0]
        if found.shape != noise.shape:  # a learnt variance beside the noise (DiT, PixArt)
            found = found.chunk(2, dim=1)[0]
        return Output(F.mse_loss(found.float(), noise.float()), found=found)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """As transformers' models spell it; blocks of diffusers are recomputed one by one."""

        def again(module: Any, *args: Any) -> Any:
            return checkpoint(module.__call__, *args, **gradient_checkpointing_kwargs)

        self.inner.enable_gradient_checkpointing(again)


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
        from . import controls

        found["cond"] = controls.image(image, rows, dtype)
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
    return {"encoder_hidden_states": zeros(batch, text, config["joint_attention_dim"]),
            "pooled_projections": zeros(batch, config.get("pooled_projection_dim", 2048))}  # fmt: skip


def _flux(config: dict[str, Any], batch: int, latent: int, text: int, zeros: Zeros) -> dict[str, Any]:
    tokens = (latent // PACKED) ** 2
    found = {**_sd3(config, batch, latent, text, zeros), "latents": zeros(batch, tokens, config.get("in_channels", 64)),
             "timesteps": zeros(batch), "txt_ids": zeros(text, 3), "img_ids": zeros(tokens, 3)}  # fmt: skip
    found["pooled_projections"] = zeros(batch, config.get("pooled_projection_dim", 768))
    return {**found, "guidance": zeros(batch)} if config.get("guidance_embeds") else found


def _dit(_: dict[str, Any], batch: int, __: int, ___: int, zeros: Zeros) -> dict[str, Any]:
    return {"class_labels": zeros(batch, of=torch.int64)}


def _pixart(config: dict[str, Any], batch: int, _: int, text: int, zeros: Zeros) -> dict[str, Any]:
    more: dict[str, Any] = {"resolution": None, "aspect_ratio": None}
    if config.get("sample_size", 128) == 128 and config.get("use_additional_conditions") is not False:
        more = {"resolution": zeros(batch, 2), "aspect_ratio": zeros(batch, 1)}
    return {"encoder_hidden_states": zeros(batch, text, config.get("caption_channels", 4096)),
            "encoder_attention_mask": zeros(batch, text), "added_cond_kwargs": more}  # fmt: skip


_CONDITIONS: dict[str, Callable[[dict[str, Any], int, int, int, Zeros], dict[str, Any]]] = {
    "UNet2DConditionModel": _unet,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "DiTTransformer2DModel": _dit,
    "PixArtTransformer2DModel": _pixart,
}
