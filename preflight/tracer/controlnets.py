"""ControlNets of diffusers with a frozen denoiser, as train_controlnet.py and train_controlnet_sdxl.py train them: the
gradient goes through the denoiser's decoder to a trainable copy of its encoder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .building import Output
from .cuda import without_autocast
from .denoising_steps import Generating


def beside(inner: nn.Module) -> nn.Module:
    """A ControlNet for a denoiser, in fp32 and on meta; the denoiser is frozen. Raises ValueError where it has none."""
    import diffusers

    if type(inner).__name__ != "UNet2DConditionModel":
        raise ValueError(f"a ControlNet for {type(inner).__name__} is not traced")
    inner.requires_grad_(False)
    with torch.device("meta"):
        control = diffusers.ControlNetModel.from_unet(inner, load_weights_from_unet=False)
    made: nn.Module = control.train()
    return made


def image(side: int, batch: int, dtype: torch.dtype) -> torch.Tensor:
    """The images that the ControlNet is conditioned on."""
    return torch.zeros(batch, 3, side, side, dtype=dtype, device="meta")


@contextlib.contextmanager
def _plain(recompute: Any) -> Iterator[None]:
    with recompute, without_autocast():  # accelerate wraps the forward of prepared models; the denoiser is not prepared
        yield


def _residuals(control: nn.Module, noisy: Any, timesteps: Any, cond: Any, more: dict[str, Any]) -> tuple[Any, Any]:
    down, mid = control(noisy, timesteps, controlnet_cond=cond, return_dict=False, **more)
    return down, mid


class Controlled(nn.Module):
    """A training step: the ControlNet under autocast, its outputs in fp32 (accelerate's ConvertOutputsToFp32), the
    denoiser in 16 bits without autocast, and the mean squared error."""

    def __init__(self, inner: nn.Module, control: nn.Module, autocast: bool) -> None:
        super().__init__()
        self.inner, self.control, self.autocast = inner, control, autocast

    def forward(self, latents: torch.Tensor, timesteps: torch.Tensor, cond: torch.Tensor, **more: Any) -> Output:
        noise = torch.randn_like(latents)
        noisy = latents + noise
        down, mid = _residuals(self.control, noisy, timesteps, cond, more)
        if self.autocast:
            down, mid = [one.float() for one in down], mid.float()
        with without_autocast():
            found = self.inner(
                noisy,
                timesteps,
                down_block_additional_residuals=[one.to(latents.dtype) for one in down],
                mid_block_additional_residual=mid.to(latents.dtype),
                return_dict=False,
                **more,
            )[0]
        # All of these have names in the script's loop.
        return Output(F.mse_loss(found.float(), noise.float()), found=found, mid=mid, down=tuple(down))

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """train_controlnet.py checkpoints the ControlNet alone, train_controlnet_sdxl.py the denoiser too."""

        def again(module: Any, *args: Any) -> Any:
            return checkpoint(module.__call__, *args, **gradient_checkpointing_kwargs)

        def again_plain(module: Any, *args: Any) -> Any:
            def context() -> tuple[Any, Any]:
                first, recompute = gradient_checkpointing_kwargs["context_fn"]()
                return first, _plain(recompute)

            return checkpoint(module.__call__, *args, **{**gradient_checkpointing_kwargs, "context_fn": context})

        self.control.enable_gradient_checkpointing(again)
        if self.inner.config.get("addition_embed_type") == "text_time":
            self.inner.enable_gradient_checkpointing(again_plain)


class ControlledGenerating(Generating):
    """One step of a pipeline with a ControlNet."""

    def __init__(self, inner: nn.Module, control: nn.Module) -> None:
        super().__init__(inner, True)
        self.control = control

    def predict(self, noisy: torch.Tensor, timesteps: torch.Tensor, **more: Any) -> torch.Tensor:
        cond = more.pop("cond")
        down, mid = _residuals(self.control, noisy, timesteps, cond, more)
        return super().predict(
            noisy, timesteps, down_block_additional_residuals=down, mid_block_additional_residual=mid, **more
        )
