"""Denoisers: what their law is filed under, and the frozen models that lie beside them.

A denoiser's tape is that of its own step (noisy latents, a prediction, its squared error). The VAE and the text
encoders of its pipeline are frozen: where they are on the GPU they are weights, and the VAE's pass over a batch of
images, without a gradient, is a phase of its own. Facts of published models are in denoisers.json: counts, what
diffusers' example scripts leave on the GPU, and in which dtype.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.memory.device.fit.few_traces import Depth
from preflight.memory.device.fit.make import CHECK_LAYERS
from preflight.memory.device.parallel.rank import Held
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

DATA = Path(__file__).with_name("denoisers.json")
KIND = "denoisers"
UNIT = 64
"""Pixels of an image's side that `u` counts: eight of the VAE, eight of a UNet's three halvings."""
LAYERS = {
    "FluxTransformer2DModel": "attn.to_k attn.to_q attn.to_v attn.to_out.0 attn.add_k_proj attn.add_q_proj "
    "attn.add_v_proj attn.to_add_out ff.net.0.proj ff.net.2 ff_context.net.0.proj ff_context.net.2",
    "SD3Transformer2DModel": "attn.add_k_proj attn.add_q_proj attn.add_v_proj attn.to_add_out attn.to_k attn.to_out.0 "
    "attn.to_q attn.to_v",
}
"""Where adapters stand (train_dreambooth_lora_flux.py, train_dreambooth_lora_sd3.py: target_modules)."""
USUAL_LAYERS = "to_k to_q to_v to_out.0"
"""The same of the other scripts (train_text_to_image_lora.py, train_text_to_image_lora_sdxl.py)."""
CONTROLNET = "controlnet"
"""The `train.peft.method` of a ControlNet beside a frozen denoiser."""
FIXED_SIZE = ("DiTTransformer2DModel", "PixArtTransformer2DModel")
"""Transformers whose tape at another image size than their own has more events (embeddings of positions made anew)."""
DEPTHS = {
    "FluxTransformer2DModel": (Depth("transformer_blocks", "num_layers", "L"),
                               Depth("single_transformer_blocks", "num_single_layers", "M")),
    "PixArtTransformer2DModel": (Depth("transformer_blocks", "num_layers", "L"),),
    "DiTTransformer2DModel": (Depth("transformer_blocks", "num_layers", "L"),),
}  # fmt: skip
"""Stacks of equal blocks; a law holds for any number of them."""
ALIKE = ("flash", "efficient")
"""Kernels of attention with one law: at a denoiser's peak they hold the same but for a padded row of statistics (on
small UNets, stored and checkpointed, full and adapted: 16 to 112 bytes)."""
DENOISER = ("denoiser", "unet", "transformer")
"""Names of the denoiser itself in `validation.loads`."""
CONVOLUTIONAL = ("UNet2DConditionModel", "AutoencoderKL")
NO_VALUES = ("sample_size", "scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast",
             "norm_eps", "upcast_attention")  # fmt: skip
"""Keys of a config that move no storage (upcast_attention: not under scaled_dot_product_attention)."""


@dataclass(frozen=True)
class Companion(Held):
    """A frozen model on the GPU, by its name in the pipeline. `config`: of a VAE, whose pass over the images counts."""

    name: str = ""
    dtype: str = "fp32"
    config: Mapping[str, Any] | None = None


@lru_cache(maxsize=1)
def data() -> dict[str, Any]:
    """denoisers.json: text tokens, defaults of diffusers' classes, VAEs, models."""
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def knows(architecture: str) -> bool:
    """Whether this is a denoiser's class."""
    return architecture.endswith(("DConditionModel", "2DModel")) and architecture in data()["text"]


def filed(architecture: str, config: Mapping[str, Any]) -> str:
    """The name of a model's law file: its class and what its config says beyond the class's defaults."""
    defaults = data()["defaults"].get(architecture, {})
    drop = NO_VALUES if architecture not in FIXED_SIZE else NO_VALUES[1:]
    own = {k: v for k, v in config.items() if k not in drop and not k.startswith("_") and v != defaults.get(k)}
    text = json.dumps(own, sort_keys=True, default=str)
    return f"{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def depths_of(architecture: str, config: Mapping[str, Any]) -> tuple[Depth, ...]:
    """The stacks of a model that are deeper than those of a trace."""
    stacks = DEPTHS.get(architecture, ())
    return tuple(one for one in stacks if one.key in config and config[one.key] > CHECK_LAYERS)


def resolve(job: Job, name: str, architecture: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What a denoiser's law is looked up by."""
    from preflight.memory.device.attention import kernel
    from preflight.memory.device.resolve import Resolved, setup_of

    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.quantization.type not in (None, "none"):
        return Unknown("train.quantization of a denoiser has no law", Cause.not_modelled)
    setup = setup_of(job, None, config, gpu)
    if isinstance(setup, Unknown):
        return setup
    precision = train.precision or "fp32"
    chosen = kernel(train.attention or "sdpa", False, "16" in precision, gpu)
    setup = {**setup, "attention": "sdpa" if chosen in ALIKE else chosen, "mask": False}
    image = train.image_size or usual_size(architecture, config)
    lengths = {"b": train.batch_size, "i": image}
    if architecture not in FIXED_SIZE:
        if image % UNIT:
            return Unknown(f"train.image_size {image} is no multiple of {UNIT}", Cause.invalid)
        lengths = {"b": train.batch_size, "u": image // UNIT}
    if setup.get("peft"):
        layers = train.peft.targets or LAYERS.get(architecture, USUAL_LAYERS).split()
        setup["peft"] = {**setup["peft"], "targets": layers}
        if precision.endswith("-mixed") and train.weights_dtype is None:
            setup["weights"] = setup["autocast"]  # frozen weights are cast (train_text_to_image_lora.py, weight_dtype)
        setup["peft"] = {k: v for k, v in setup["peft"].items() if k not in ("r", "options")}
        if train.peft.method == CONTROLNET:
            setup["peft"] = {"method": CONTROLNET, "targets": None, "dropout": False}
        else:
            lengths["r"] = train.peft.r or 8
    text = train.text_len or data()["text"][architecture]
    extra = f"text={text}" + (f" image={image}" if architecture in FIXED_SIZE else "")
    model = {"kind": KIND, "architecture": architecture, "config": dict(config), "text": text, "task": "diffusion",
             "filed": filed(architecture, config), "extra": extra}  # fmt: skip
    if train.peft.method == CONTROLNET:
        model |= {"controlled": True, "filed": f"{model['filed']}-controlnet"}
    dims = {one.name: config[one.key] for one in depths_of(architecture, config)}
    return Resolved(None, "diffusion", dims, lengths, {}, setup, model, name)


def usual_size(architecture: str, config: Mapping[str, Any]) -> int:
    """Pixels of a side that a denoiser was made for (`sample_size` counts latents)."""
    side = config.get("sample_size") or data()["defaults"].get(architecture, {}).get("sample_size") or 128
    return int(side) * 8


def companions(job: Job, resolved: Resolved) -> tuple[tuple[Companion, ...], ...]:
    """What lies beside a denoiser: as stated; where nothing is, as diffusers' script has it, then with nothing and with
    all of the pipeline, which are possible as well."""
    known = _pipeline(job, resolved)
    named = job.train.companions
    if named is not None:
        return (tuple(known[name] for name in named),)
    usual = _scripts(job, resolved.name)
    found = [tuple(known[name] for name in usual if name in known), (), tuple(known.values())]
    return tuple(one for n, one in enumerate(found) if one not in found[:n])


def unknown_companion(job: Job, resolved: Resolved) -> Unknown | None:
    """Why what is stated to lie beside a denoiser cannot be counted."""
    known = _pipeline(job, resolved)
    trained = (*DENOISER, CONTROLNET)
    stated = {"train.companions": job.train.companions or (),
              "validation.loads": [one for one in job.validation.loads or () if one not in trained]}  # fmt: skip
    for field, names in stated.items():
        for name in names:
            if name not in known:
                return Unknown(f"{field}: the size of {name} beside {resolved.name} is not known "
                               f"(known: {', '.join(known) or 'none'})", Cause.not_modelled)  # fmt: skip
    return None


def _row(name: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] = data()["models"].get(name, {})
    return row


def _scripts(job: Job, name: str) -> list[str]:
    adapted = job.train.peft.method not in (None, "none")
    found: list[str] = _row(name).get("lora" if adapted else "full", [])
    return found


def _pipeline(job: Job, resolved: Resolved) -> dict[str, Companion]:
    """Every model that the pipeline has beside the denoiser, and each that is asked for in a dtype of its own."""
    precision = job.train.precision or "fp32"
    cast = precision.removesuffix("-mixed")
    rows = _row(resolved.name).get("companions", {})
    found = {}
    for name in (*rows, *(job.train.companions or ()), *(job.validation.loads or ())):
        plain, _, dtype = name.partition(":")
        row = rows.get(plain)
        if row is None or dtype not in ("", "fp32", "fp16", "bf16"):
            continue
        dtype = dtype or row.get("dtype", cast)
        config = data()["vaes"][row["vae"]] if "vae" in row else None
        found[name] = Companion(row["parameters"] * (4 if dtype == "fp32" else 2), "weights", name, dtype, config)
    return found


def pipeline(job: Job, resolved: Resolved) -> Mapping[str, Companion]:
    """Every model of the pipeline beside the denoiser, by its name: in the dtype of its name where that says one
    (`vae:fp16`), else in the one that the scripts have it in."""
    return _pipeline(job, resolved)


def encoder(resolved: Resolved, companion: Companion) -> Resolved:
    """The pass of a VAE over the batch's images."""
    return _of_vae(resolved, companion, "encoding", None)


def decoder(resolved: Resolved, companion: Companion, autocast: bool) -> Resolved:
    """The pass of a VAE over the latents of generated images."""
    return _of_vae(resolved, companion, "decoding", "bf16" if autocast else None)


def _of_vae(resolved: Resolved, companion: Companion, task: str, autocast: str | None) -> Resolved:
    assert companion.config is not None
    dtype = "fp32" if companion.dtype == "fp32" else "bf16"
    setup = {"weights": dtype, "autocast": autocast, "attention": "sdpa", "mask": False, "checkpointing": False,
             "peft": None}  # fmt: skip
    lengths = {k: v for k, v in resolved.lengths.items() if k in ("b", "u", "i")}
    extra = f"image={lengths['i']}" if "i" in lengths else "text=0"
    model = {"kind": KIND, "architecture": "AutoencoderKL", "config": dict(companion.config), "task": task,
             "filed": filed("AutoencoderKL", companion.config), "extra": extra}  # fmt: skip
    return replace(resolved, task=task, lengths=lengths, setup=setup, model=model, name=companion.name)


def generator(resolved: Resolved, images: int) -> Resolved:
    """A step of the pipeline that generates, for `images` at once, at the side that the pipeline has by itself: the
    scripts' calls state none. Autocast is on whatever training has (log_validation: torch.autocast("cuda"))."""
    architecture, config = str(resolved.model["architecture"]), resolved.model["config"]
    image = usual_size(architecture, config)
    side = {"i": image} if architecture in FIXED_SIZE else {"u": image // UNIT}
    rank = {"r": resolved.lengths["r"]} if "r" in resolved.lengths else {}
    extra = f"text={resolved.model['text']}" + (f" image={image}" if architecture in FIXED_SIZE else "")
    setup = {**resolved.setup, "autocast": resolved.setup["autocast"] or "bf16"}
    filed_under = f"{resolved.model['filed']}-generation"
    model = {**resolved.model, "task": "generation", "extra": extra, "filed": filed_under}
    return replace(resolved, task="generation", lengths={"b": images, **side, **rank}, setup=setup, model=model)
