"""Models of images and text: built from transformers' own classes, fed with placeholders as a processor makes them.

What decides the shapes of such a model's step is data: which tokens stand for an image, how many patches an image has,
which of its tiles are padding. These few integers are true values on the CPU, everything else is on meta, and `Values`
lets the two meet: so every shape is what the model's own code makes of them, and its own checks (as many placeholders
as features) are run.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import adapters, losses, quantized

PARTS = {
    "projector": ("multi_modal_projector", "merger", "merger_list", "deepstack_merger_list", "connector", "qformer",
                  "query_tokens", "language_projection", "image_newline"),
    "vision": ("vision_tower", "visual", "vision_model"),
}  # fmt: skip
"""Modules of a part, in whatever they lie; what is in neither is the language model's."""


PLACEHOLDER = 2
"""The token that stands for an image, whatever the model's own is."""


def part(name: str) -> str:
    """The part that a parameter or module belongs to, by its name: "vision", "projector" or "language"."""
    steps = set(name.split("."))
    return next((one for one, names in PARTS.items() if steps & set(names)), "language")


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"architecture", "config"}; `setup`: as `models.build` has it, with
    frozen: of "vision", "projector", "language". Adapters stand in no frozen part."""
    import transformers

    config = transformers.AutoConfig.for_model(model["architecture"], **model["config"])
    for one in (config, *(getattr(config, n, None) for n in ("text_config", "vision_config"))):
        if one is not None and hasattr(one, "use_cache"):
            one.use_cache = False
    config.image_token_id = PLACEHOLDER
    implementation = "eager" if setup.get("attention") == "eager" else "sdpa"
    with torch.device("meta"):
        auto = transformers.AutoModelForImageTextToText
        try:
            inner = auto.from_config(config, attn_implementation=implementation)
        except ValueError as error:
            if "does not support" not in str(error):
                raise
            inner = auto.from_config(config, attn_implementation="eager")
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
    return _look(whole, inner, model)


def _beside(peft: dict[str, Any], left_out: list[str]) -> dict[str, Any]:
    """The options of adapters that stand in none of the modules left out."""
    given = dict(peft.get("options") or {})
    if left_out and "exclude_modules" not in given:
        given["exclude_modules"] = left_out
    return {**{k: v for k, v in peft.items() if k != "half"}, "options": given}


def _look(whole: Any, inner: Any, model: dict[str, Any]) -> nn.Module:
    """The model with inputs that are partly true values, in its forward and in what checkpoints compute again."""
    plain = whole.forward

    def forward(**batch: Any) -> Any:
        with Values(model), _Scalars():
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
    with recompute, Values(model), _Scalars():
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


class Values(TorchFunctionMode):
    """Lets tensors of the CPU, whose values are true, and tensors of meta be arguments of one operation: what meets
    meta is on meta from there on. A mask that has values selects as many elements as it does; a mask that has none
    selects all (the most that there can be). A list of numbers without values counts the tiles of each sample."""

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__()
        self._model = model
        self._twins: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in _flat((*args, *kwargs.values())) if isinstance(one, torch.Tensor)]
        true = [one for one in tensors if one.device.type == "cpu"]
        if func is torch.Tensor.to or (func is torch.as_tensor and true):
            args, kwargs = _in_place(args, kwargs)
            func = torch.Tensor.to
        if len(true) == len(tensors) and not _of_meta(args, kwargs):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                return func(*args, **kwargs)
        if self._model.get("varlen") and func is F.scaled_dot_product_attention:
            args, kwargs = args[:3], {name: one for name, one in kwargs.items() if name != "attn_mask"}
        if func is torch.split and len(tensors) == 1 and args[0].dim() == 4 and len(args[1]) > 1:
            return (self._pieces(args[0], args[1]),)
        if func is torch.cat and self._model.get("varlen") and len(args[0]) == 1:
            return args[0][0]
        if func is torch.Tensor.tolist:
            return [self._model.get("tiles", 1)] * args[0].shape[0]
        if func is torch.Tensor.__getitem__ and len(args) == 2:
            args = (args[0], self._selected(args[1], args[0].device.type == "meta"))
            tensors = [one for one in _flat(args) if isinstance(one, torch.Tensor)]
        if func is torch.Tensor.__setitem__ and isinstance(args[2], torch.Tensor):
            args = (args[0], self._selected(args[1], args[0].device.type == "meta"), args[2])
            tensors = [one for one in _flat(args) if isinstance(one, torch.Tensor)]
            true = [one for one in tensors if one.device.type == "cpu"]
        if true and len(true) < len(tensors):
            args = tuple(_changed(one, self._twin) for one in args)
            kwargs = {name: _changed(one, self._twin) for name, one in kwargs.items()}
        return func(*args, **kwargs)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of meta in place of one with values."""
        if tensor.device.type != "cpu" or not tensor.dim():
            return tensor
        known = self._twins.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        with _disable_current_modes():
            twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        self._twins[id(tensor)] = (weakref.ref(tensor), twin)
        return twin

    def _pieces(self, whole: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """Queries, keys or values of one image (or window) after another, as one tensor that attention takes at once:
        what it makes and keeps is the same in all. Its scratch is that of all pieces, which is more. Where kernels take
        packed lengths (`varlen`) nothing is divided; otherwise what the pieces' gradients are joined to is a copy."""
        if self._model.get("varlen"):
            return whole
        _, heads, _, width = whole.shape
        if len(set(lengths)) > 1:
            found: torch.Tensor = _Divided.apply(whole, (1, heads, sum(lengths), width))
        else:
            strides = whole.stride()
            shape = (len(lengths), heads, lengths[0], width)
            found = _Divided.apply(whole, shape, (strides[2] * lengths[0], *strides[1:]))
        return found

    def _selected(self, index: Any, meta: bool) -> Any:
        """An index of a tensor (of meta, or with values) in which masks are the positions that they select, as kernels
        make of them."""
        if isinstance(index, torch.Tensor) and index.dtype is torch.bool:
            return self._positions(index, meta)
        if isinstance(index, tuple):
            found: list[Any] = []
            for one in index:
                mask = isinstance(one, torch.Tensor) and one.dtype is torch.bool
                found += self._positions(one, meta) if mask else [one]
            return tuple(found)
        return index

    def _positions(self, mask: torch.Tensor, meta: bool) -> tuple[torch.Tensor, ...]:
        if mask.device.type == "meta" and meta:
            return tuple(mask.nonzero().unbind(1))
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            known = torch.ones(mask.shape, dtype=torch.bool) if mask.device.type == "meta" else mask
            found = known.nonzero()
            return tuple((torch.empty_like(found, device="meta") if meta else found).unbind(1))


class _Divided(torch.autograd.Function):
    """A view in another shape, whose gradient is copied."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        ctx.shape = whole.shape
        return whole.as_strided(shape, strides or torch.empty(shape, device="meta").stride())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].new_empty(ctx.shape), None, None


class _Joined(torch.autograd.Function):
    """The same storage in another shape, both ways."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        ctx.shape = whole.shape
        return whole.as_strided(shape, torch.empty(shape, device="meta").stride())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].as_strided(ctx.shape, torch.empty(ctx.shape, device="meta").stride()), None


class _Scalars(TorchDispatchMode):
    """Numbers that operations read from tensors with values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "cpu":
            with _disable_current_modes():
                return func(*args)
        return func(*args, **(kwargs or {}))


def _in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `x.to(...)` for a tensor that stays where it is: its dtype alone changes."""
    first, *rest = args
    given = [one.dtype if isinstance(one, torch.Tensor) else one for one in (*rest, kwargs.get("dtype"))]
    dtype = next((one for one in given if isinstance(one, torch.dtype)), first.dtype)
    more = {name: one for name, one in kwargs.items() if name in ("copy", "memory_format")}
    return (first, dtype), more


def _of_meta(args: Any, kwargs: Any) -> bool:
    """Whether a result is asked for on meta."""
    devices = [kwargs.get("device"), *(one for one in args if isinstance(one, torch.device))]
    return any(one is not None and torch.device(one).type == "meta" for one in devices)


def _flat(values: Any) -> Iterator[Any]:
    for one in values:
        if isinstance(one, (tuple, list)):
            yield from _flat(one)
        else:
            yield one


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_changed(one, change) for one in value)
    return value


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch. Point: b, s (tokens in all).

    `model`: "spans" (how many placeholders stand for each image of a sample), "mask" (whether the batch is padded),
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
