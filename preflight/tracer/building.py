"""Shared by the builders of models: classes of transformers by their configurations, models of timm and torchvision on
meta, and the outputs of a step."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

_CONTEXT: list[Callable[[], Any]] = []
"""Makes the context in which the traced model's layers are computed again (emulation of CUDA); empty before the first
such model."""


class CannotBuild(Exception):
    """The description does not make a model; the message says why."""


class Output(dict[str, Any]):
    """The outputs of a step: a loss, and other tensors that a variable of the caller still holds."""

    def __init__(self, loss: torch.Tensor, **more: torch.Tensor) -> None:
        super().__init__(more)
        self.loss = loss


def from_config(auto: Any, config: Any, setup: dict[str, Any]) -> Any:
    """A model of transformers with the attention of `setup`; with eager attention where the class has no other.

    Raises ValueError for what cannot be built.
    """
    if setup.get("attention") == "eager":
        return auto.from_config(config, attn_implementation="eager")
    try:
        return auto.from_config(config, attn_implementation="sdpa")
    except ValueError as error:
        if "does not support" not in str(error):
            raise
    return auto.from_config(config, attn_implementation="eager")


def on_meta(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The model that `make` returns, on meta. A constructor that reads values of its tensors (torchvision's RegNets do)
    runs on the CPU first."""
    try:
        return make()
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error):
            raise
    with torch.device("cpu"):
        made = make()
    return made.to("meta")


def make_timm(name: str, side: int | None, kwargs: dict[str, Any]) -> torch.nn.Module:
    """A model of timm, made for images of this side where its position embeddings have a fixed size."""
    create = importlib.import_module("timm").create_model
    made = on_meta(lambda: create(name, **kwargs))
    embedding = getattr(made, "patch_embed", None)
    own = getattr(embedding, "img_size", None)
    if side and own and tuple(own) != (side, side) and getattr(embedding, "strict_img_size", True):
        made = on_meta(lambda: create(name, **{"img_size": side, **kwargs}))
    return made


def checkpoint_timm(model: Any, context_fn: Callable[[], Any]) -> None:
    """timm's checkpointing. It calls torch.utils.checkpoint.checkpoint by its module (timm/models/_manipulate.py) and
    gives no context for the recomputation, so the function is wrapped once."""
    if not _CONTEXT:
        real = torch.utils.checkpoint.checkpoint

        def checkpoint(*args: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
            if use_reentrant is False:
                kwargs.setdefault("context_fn", _CONTEXT[-1])
            return real(*args, use_reentrant=use_reentrant, **kwargs)

        torch.utils.checkpoint.checkpoint = checkpoint
    _CONTEXT[:] = [context_fn]
    model.set_grad_checkpointing(True)
