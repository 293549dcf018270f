"""Models of images and text: built from transformers' own classes, fed with placeholders as a processor makes them.

The shapes of such a model's step depend on data: which tokens are placeholders of an image, how many patches an image
has, which of its tiles are padding. These few integers have true values on the CPU; everything else is on meta.
`true_values` lets operations take both. So the model's own code decides every shape, and its own checks (as many
placeholders as features) are run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import adapters, losses, quantized
from .building import from_config
from .true_values import Scalars, Values

PARTS = {
    "projector": ("multi_modal_projector", "merger", "merger_list", "deepstack_merger_list", "connector", "qformer",
                  "query_tokens", "language_projection", "image_newline"),
    "vision": ("vision_tower", "visual", "vision_model"),
}  # fmt: skip
"""Modules of a part, at any place. Modules of neither part belong to the language model."""
PLACEHOLDER = 2
"""The placeholder token of an image, whatever the model's own is."""


def part(name: str) -> str:
    """The part that a parameter or module belongs to, by its name: "vision", "projector" or "language"."""
    steps = set(name.split("."))
    return next((one for one, names in PARTS.items() if steps & set(names)), "language")


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"architecture", "config"}; `setup`: as `models.build` has it, with
    frozen: of "vision", "projector", "language". No frozen part gets adapters."""
    import transformers

    config = transformers.AutoConfig.for_model(model["architecture"], **model["config"])
    for one in (config, *(getattr(config, n, None) for n in ("text_config", "vision_config"))):
        if one is not None and hasattr(one, "use_cache"):
            one.use_cache = False
    config.image_token_id = PLACEHOLDER
    with torch.device("meta"):
        inner = from_config(transformers.AutoModelForImageTextToText, config, setup)
    inner = inner.train().to(dtypes[setup.get("weights", "fp32")])
    if setup.get("quantization"):
        quantized.quantise(inner, setup["quantization"], dtypes)
    frozen = set(setup.get("frozen", ()))
    for name, parameter in inner.named_parameters():
        if part(name) in frozen:
            parameter.requires_grad_(False)
    whole = inner
    if setup.get("peft"):
        left_out = [name for name, _ in inner.named_modules() if part(name) in frozen]
        options = {"half": dtypes.get(setup["peft"].get("half") or ""), **_beside(setup["peft"], left_out)}
        whole = adapters.adapt(inner, options, "")
        quantized.adapt_forwards(whole, bool(setup.get("autocast")))
    _pack_at_once(inner)
    if setup.get("loss"):
        losses.install(inner, setup["loss"], None, dtypes.get(setup.get("autocast") or ""))
    return _look(whole, inner, {**model, "written_out": setup.get("attention") in ("eager", "math")})


def _beside(peft: dict[str, Any], left_out: list[str]) -> dict[str, Any]:
    """The options of adapters that are in none of the modules left out."""
    given = dict(peft.get("options") or {})
    if left_out and "exclude_modules" not in given:
        given["exclude_modules"] = left_out
    return {**{k: v for k, v in peft.items() if k != "half"}, "options": given}


def _look(whole: Any, inner: Any, model: dict[str, Any]) -> nn.Module:
    """The model with some real input values, in its forward and in the recomputation of checkpoints."""
    plain = whole.forward

    def forward(**batch: Any) -> Any:
        with Values(model), Scalars():
            return plain(**batch)

    whole.forward = forward
    for one in (inner, inner.base_model):
        one.gradient_checkpointing_enable = _enabling(one.gradient_checkpointing_enable, model)
    made: nn.Module = whole
    return made


def _enabling(enable: Callable[..., None], model: dict[str, Any]) -> Callable[..., None]:
    """A model's `gradient_checkpointing_enable` whose recomputation knows true values too."""

    def gradient_checkpointing_enable(gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        context = gradient_checkpointing_kwargs["context_fn"]

        def context_fn() -> tuple[Any, Any]:
            forward, recompute = context()
            return forward, _again(recompute, model)

        enable(gradient_checkpointing_kwargs={**gradient_checkpointing_kwargs, "context_fn": context_fn})

    return gradient_checkpointing_enable


@contextlib.contextmanager
def _again(recompute: Any, model: dict[str, Any]) -> Iterator[None]:
    with recompute, Values(model), Scalars():
        yield


def _pack_at_once(model: Any) -> None:
    """LLaVA-NeXT puts the features of one image after another in order. Here all images are one whose features are as
    much wider: every tensor has the bytes of those of all images."""
    base = getattr(model, "model", model)
    plain = getattr(base, "pack_image_features", None)
    if plain is None:
        return

    def pack(image_features: Any, image_sizes: Any, image_newline: Any = None, **more: Any) -> Any:
        count, (tiles, length, width) = len(image_features), image_features[0].shape
        whole = image_features[0]._base
        wide = _Joined.apply(whole, (tiles, length, count * width))
        newline = None if image_newline is None else image_newline.repeat(count)
        (packed,), lengths = plain([wide], image_sizes[:1], image_newline=newline, **more)
        return [_Joined.apply(packed, (count * packed.shape[0], width))], lengths

    base.pack_image_features = pack


class _Joined(torch.autograd.Function):
    """The same storage in another shape, both ways."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        ctx.shape = whole.shape
        return whole.as_strided(shape, torch.empty(shape, device="meta").stride())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].as_strided(ctx.shape, torch.empty(ctx.shape, device="meta").stride()), None


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch. Point: b, s (tokens in all).

    `model`: "spans" (the number of placeholders of each image of a sample), "mask" (whether the batch is padded),
    "marks" (name of an input of 1 for placeholders, or None), "feeds": {name: {"shape", "per" ("sample": batch x shape;
    "row": batch x shape[0], the rest; "token": batch x s x shape), "dtype" ("float", "int", "bool"), "values" (a row,
    repeated) or "ones" (true ones); neither: on meta}}.
    """
    b, s = point["b"], point["s"]
    ids = torch.ones(b, s, dtype=torch.int64)
    at = 1
    for length in model["spans"]:
        ids[:, at : at + length] = PLACEHOLDER
        at += length + 1
    if at > s:
        raise ValueError(f"{s} tokens are fewer than the {at} that the images of a sample take")
    found: dict[str, Any] = {"input_ids": ids, "labels": torch.zeros(b, s, dtype=torch.int64, device="meta")}
    if model.get("mask"):
        found["attention_mask"] = torch.ones(b, s, dtype=torch.int64)
        found["attention_mask"][0, -1] = 0
    if model.get("marks"):
        found[model["marks"]] = (ids == PLACEHOLDER).to(torch.int64)
    for name, feed in model["feeds"].items():
        found[name] = _feed(feed, b, s, dtype)
    return found


def _feed(feed: dict[str, Any], b: int, s: int, floating: torch.dtype) -> torch.Tensor:
    shape, dtype = feed["shape"], {"float": floating, "int": torch.int64, "bool": torch.bool}[feed["dtype"]]
    if "values" in feed:
        return torch.tensor([feed["values"]] * (b * shape[0]), dtype=dtype)
    if feed["per"] == "row":
        full = (b * shape[0], *shape[1:])
    else:
        full = (b, s, *shape) if feed["per"] == "token" else (b, *shape)
    if feed.get("ones"):
        return torch.ones(full, dtype=dtype)
    return torch.zeros(full, dtype=dtype, device="meta")
