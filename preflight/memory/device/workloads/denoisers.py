"""Denoisers of diffusers: resolving a job that trains one, and the passes of their VAE.

The tape of a denoiser is its training step: noisy latents, a prediction, the squared error. The VAE encodes a batch of
images without gradients: that is a separate phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.adapters import CONTROLNET, Adapters
from preflight.memory.device.law.made import CHECK_LAYERS, Depth, Weight
from preflight.memory.device.law.setup import Setup, with_kernel
from preflight.memory.device.law.workload import Config, ExtraPhase, Resolved, WorkloadRequest
from preflight.memory.device.workloads import generated_images
from preflight.memory.device.workloads.own_step import OwnStep, begin, digest
from preflight.memory.device.workloads.pipelines import DENOISER, Companion, companions, data, pipeline
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

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
FIXED_SIZE = ("DiTTransformer2DModel", "PixArtTransformer2DModel")
"""Transformers whose tape at another image size than their own has more events (embeddings of positions made anew)."""
DEPTHS = {
    "FluxTransformer2DModel": (
        Depth("transformer_blocks", "num_layers", "L"),
        Depth("single_transformer_blocks", "num_single_layers", "M"),
    ),
    "PixArtTransformer2DModel": (Depth("transformer_blocks", "num_layers", "L"),),
    "DiTTransformer2DModel": (Depth("transformer_blocks", "num_layers", "L"),),
}
"""Stacks of equal blocks; a law holds for any number of them."""
ALIKE = ("flash", "efficient")
"""Kernels of attention with one law: at a denoiser's peak they hold the same but for a padded row of statistics (on
small UNets, stored and checkpointed, full and adapted: 16 to 112 bytes)."""
VAE = "AutoencoderKL"
CONVOLUTIONAL = ("UNet2DConditionModel", VAE)
NO_VALUES = ("sample_size", "scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast",
             "norm_eps", "upcast_attention")  # fmt: skip
"""Keys of a config that move no storage (upcast_attention: not under scaled_dot_product_attention)."""


class Denoiser(OwnStep, frozen=True):
    """A denoiser, or the VAE of its pipeline. `task`: "diffusion" (its training step), "generation" (a step of the
    pipeline); of a VAE "encoding" or "decoding"."""

    kind: ClassVar[str] = "denoisers"
    casts_frozen: ClassVar[bool] = True  # to weight_dtype (train_text_to_image_lora.py)
    generation_phase: ClassVar[str] = "validation"
    text: int | None = None
    """Tokens of the prompt."""
    image: int | None = None
    """Pixels of a side, of models whose law is of one size."""
    controlled: bool = False
    """Whether a ControlNet is trained instead of the denoiser."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return is_denoiser(asked.known_as)

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        job, architecture, config = asked.job, asked.known_as, asked.config
        if job.train.batch_size is not None and job.train.quantization.type not in (None, "none"):
            return Unknown("train.quantization of a denoiser has no law", Cause.not_modelled)
        setup = begin(asked)
        if isinstance(setup, Unknown):
            return setup
        setup = _adapted(with_kernel(setup, job, asked.gpu, alike=ALIKE), job, architecture)
        image = job.train.image_size or usual_size(architecture, config)
        if architecture not in FIXED_SIZE and image % UNIT:
            return Unknown(f"train.image_size {image} is not a multiple of {UNIT}", Cause.invalid)
        controlled = job.train.peft.method == CONTROLNET
        lengths = {"b": job.train.batch_size or 1, **_side(architecture, image)}
        if setup.peft is not None and not controlled:
            lengths["r"] = job.train.peft.r or 8
        model = cls(
            architecture,
            config,
            "diffusion",
            job.train.text_len or data()["text"][architecture],
            lengths.get("i"),
            controlled,
        )
        dims = {one.name: config[one.key] for one in model.depths}
        return Resolved(model, asked.name, "diffusion", dims, lengths, setup)

    def told(self) -> dict[str, Any]:
        text = {"text": self.text} if self.text is not None else {}
        return {**text, **({"controlled": True} if self.controlled else {})}

    @property
    def filed(self) -> str:
        control = "-controlnet" if self.controlled else ""
        return file_of(self.architecture, self.config) + control + ("-generation" * (self.task == "generation"))

    @property
    def extra(self) -> str:
        sizes = {"text": self.text, "image": self.image}
        return " ".join(f"{name}={size}" for name, size in sizes.items() if size is not None) or "text=0"

    @property
    def convolutional(self) -> bool:
        return self.architecture in CONVOLUTIONAL

    @property
    def depths(self) -> tuple[Depth, ...]:
        stacks = DEPTHS.get(self.architecture, ())
        return tuple(one for one in stacks if one.key in self.config and self.config[one.key] > CHECK_LAYERS)

    def beside(
        self, job: Job, resolved: Resolved, rows: Sequence[Weight], buffers: int
    ) -> tuple[Companion, ...] | Unknown:
        return companions(job, resolved.name)

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """Where train.companions is not stated, none or all of the pipeline's models may be on the GPU."""
        usual = companions(job, resolved.name)
        if job.train.companions is not None or isinstance(usual, Unknown):
            return
        every = list(pipeline(job, resolved.name))
        seen = [{one.name for one in usual}]
        for names in ([], every):
            if {*names} not in seen:
                seen.append({*names})
                yield job.model_copy(update={"train": job.train.model_copy(update={"companions": names})})

    def extra_phases(
        self, job: Job, resolved: Resolved, whole: Sequence[Weight], here: Sequence[Weight]
    ) -> Iterator[ExtraPhase]:
        """A frozen VAE encodes the images of a batch before the step; and saving."""
        for companion in generated_images.on_gpu(job, resolved.name):
            if companion.config is not None:
                yield ExtraPhase("encoding", (self.encoder(resolved, companion),), of_batch=True)
        yield from generated_images.saving(job, here)

    def image_generation(
        self, job: Job, resolved: Resolved, whole: Sequence[Weight], here: Sequence[Weight]
    ) -> ExtraPhase:
        """A step of the denoiser, and decoding. In a fresh pipeline the scripts of text_to_image have autocast, and
        those of dreambooth have not: the larger counts."""
        step = self.generator(resolved, job.validation.batch_size or 1)
        vae = generated_images.decodes(job, resolved.name)
        steps = [step]
        if vae is not None:
            steps.append(self.decoder(step, vae, True))
            if any(name in DENOISER for name in generated_images.loads(job, resolved.name)):
                steps.append(self.decoder(step, vae, False))
        return ExtraPhase("validation", tuple(steps), generated_images.loaded(job, resolved.name, whole, here))

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        if job.train.companions is None:
            names = ", ".join(one.name for one in generated_images.on_gpu(job, resolved.name)) or "nothing"
            yield (
                f"assumed: {names} on the GPU in addition to the denoiser, as in diffusers' example scripts; state "
                "train.companions"
            )
        yield from generated_images.notes(job, resolved.name)

    def generator(self, resolved: Resolved, images: int) -> Resolved:
        """One denoising step of the pipeline for `images` at once, at the pipeline's default size: the scripts state
        none. Autocast is always on (log_validation: torch.autocast("cuda"))."""
        side = _side(self.architecture, usual_size(self.architecture, self.config))
        rank = {"r": resolved.lengths["r"]} if "r" in resolved.lengths else {}
        setup = replace(resolved.setup, autocast=resolved.setup.autocast or "bf16")
        model = replace(self, task="generation", image=side.get("i"))
        lengths = {"b": images, **side, **rank}
        return replace(resolved, task="generation", lengths=lengths, setup=setup, workload=model)

    def encoder(self, resolved: Resolved, vae: Companion) -> Resolved:
        """The pass of a VAE over the batch's images."""
        return _of_vae(resolved, vae, "encoding", None)

    def decoder(self, resolved: Resolved, vae: Companion, autocast: bool) -> Resolved:
        """The pass of a VAE over the latents of generated images."""
        return _of_vae(resolved, vae, "decoding", "bf16" if autocast else None)


def is_denoiser(architecture: str) -> bool:
    """Whether this is a denoiser's class."""
    return architecture.endswith(("DConditionModel", "2DModel")) and architecture in data()["text"]


def file_of(architecture: str, config: Config) -> str:
    """The name of a model's law file: its class, and the config values that differ from the class's defaults."""
    defaults = data()["defaults"].get(architecture, {})
    drop = NO_VALUES if architecture not in FIXED_SIZE else NO_VALUES[1:]
    own = {k: v for k, v in config.items() if k not in drop and not k.startswith("_") and v != defaults.get(k)}
    return f"{architecture}-{digest(own)}"


def usual_size(architecture: str, config: Config) -> int:
    """Pixels of a side that a denoiser was made for (`sample_size` counts latents)."""
    side = config.get("sample_size") or data()["defaults"].get(architecture, {}).get("sample_size") or 128
    return int(side) * 8


def _of_vae(resolved: Resolved, companion: Companion, task: str, autocast: str | None) -> Resolved:
    assert companion.config is not None
    setup = Setup(weights="fp32" if companion.dtype == "fp32" else "bf16", autocast=autocast)
    lengths = {k: v for k, v in resolved.lengths.items() if k in ("b", "u", "i")}
    model = Denoiser(VAE, companion.config, task, image=lengths.get("i"))
    return replace(resolved, task=task, lengths=lengths, setup=setup, workload=model, name=companion.name)


def _side(architecture: str, image: int) -> Mapping[str, int]:
    return {"i": image} if architecture in FIXED_SIZE else {"u": image // UNIT}


def _adapted(setup: Setup, job: Job, architecture: str) -> Setup:
    """The setup with adapters as diffusers' scripts put them, over frozen weights that they cast."""
    peft = setup.peft
    if peft is None:
        return setup
    if setup.autocast is not None and job.train.weights_dtype is None:
        setup = replace(setup, weights=setup.autocast)
    if job.train.peft.method == CONTROLNET:
        return replace(setup, peft=Adapters(CONTROLNET, None))
    layers = job.train.peft.targets or LAYERS.get(architecture, USUAL_LAYERS).split()
    targets = layers if isinstance(layers, str) else tuple(layers)
    return replace(setup, peft=replace(peft, targets=targets, rank=None, options=None))
