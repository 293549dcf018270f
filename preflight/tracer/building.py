"""Shared by the builders of models: classes of transformers by their configurations, models of timm and torchvision on
meta, and the outputs of a step."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Iterable
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


EXCEPT = "!"
"""Before a part that is trained, whatever was said of it before."""


def freeze(model: torch.nn.Module, parts: Iterable[str]) -> None:
    """Takes the gradients of the parameters of some parts. `parts`, of which a later one decides over an earlier one:
    paths of modules or parameters as a program writes them after the model's name (in transformers, `base_model` is a
    property), and patterns of fnmatch for parameters' names. Raises CannotBuild for what the model does not have."""
    named = getattr(model, "parameters_as_published", model.named_parameters)
    for part in parts:
        path = part.removeprefix(EXCEPT)
        found = [one for name, one in named() if fnmatch.fnmatchcase(name, path) or name.startswith(f"{path}.")]
        if not found:
            found = _below(model, path)
        for parameter in found:
            parameter.requires_grad_(part.startswith(EXCEPT))


def _below(model: torch.nn.Module, path: str) -> list[torch.nn.Parameter]:
    """The parameters of a module that an attribute is, or an index from the end of a sequence."""
    found: Any = model
    for name in path.split("."):
        if isinstance(found, (torch.nn.Sequential, torch.nn.ModuleList)):
            ends = {str(at - len(found)): one for at, one in enumerate(found)}
            found = ends.get(name, getattr(found, name, None))
        else:
            found = getattr(found, name, None)
    parameters = list(found.parameters()) if isinstance(found, torch.nn.Module) else []
    if not parameters:
        raise CannotBuild(f"{type(model).__name__} has no parameters of {path}")
    return parameters


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
