"""Steps of diffusers' models, after its example scripts and pipelines: encoding of images, decoding of latents, one
step of a pipeline that generates, and a training step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .building import Output


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
        if found.shape != noise.shape:  # a learnt variance in addition to the noise (DiT, PixArt)
            found = found.chunk(2, dim=1)[0]
        return Output(F.mse_loss(found.float(), noise.float()), found=found)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """As transformers' models spell it; blocks of diffusers are recomputed one by one."""

        def again(module: Any, *args: Any) -> Any:
            return checkpoint(module.__call__, *args, **gradient_checkpointing_kwargs)

        self.inner.enable_gradient_checkpointing(again)
