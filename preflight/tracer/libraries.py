"""Models of timm and torchvision: made on meta, for an image's side, and with timm's own checkpointing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

_CONTEXT: list[Callable[[], Any]] = []
"""What brings the CUDA emulation into a recomputation of the model that is traced; empty before the first."""


def on_meta(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """What `make` makes where tensors are made on meta. A constructor that reads the values of its tensors (those of
    torchvision's RegNets do) has them on the CPU first."""
    try:
        return make()
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error):
            raise
    with torch.device("cpu"):
        made = make()
    return made.to("meta")


def make_timm(name: str, side: int | None, kwargs: dict[str, Any]) -> torch.nn.Module:
    """A model of timm. One whose positions belong to another side than the images' can only have been made for it."""
    create = importlib.import_module("timm").create_model
    made = on_meta(lambda: create(name, **kwargs))
    embedding = getattr(made, "patch_embed", None)
    own = getattr(embedding, "img_size", None)
    if side and own and tuple(own) != (side, side) and getattr(embedding, "strict_img_size", True):
        made = on_meta(lambda: create(name, **{"img_size": side, **kwargs}))
    return made


def checkpoint_timm(model: Any, context_fn: Callable[[], Any]) -> None:
    """timm's checkpointing, which calls torch.utils.checkpoint.checkpoint by its module (timm/models/_manipulate.py)
    and leaves it to choose the context of what is computed again."""
    if not _CONTEXT:
        real = torch.utils.checkpoint.checkpoint

        def checkpoint(*args: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
            if use_reentrant is False:
                kwargs.setdefault("context_fn", _CONTEXT[-1])
            return real(*args, use_reentrant=use_reentrant, **kwargs)

        torch.utils.checkpoint.checkpoint = checkpoint
    _CONTEXT[:] = [context_fn]
    model.set_grad_checkpointing(True)
