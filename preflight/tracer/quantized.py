"""Our re-implementation of bitsandbytes' linear layers on the meta device: the tensors that they keep and the temporary
ones. Layers of other quantisations are in `packed`.

Written after bitsandbytes 0.4x to 0.50: nn/modules.py (Linear4bit, Linear8bitLt), autograd/_functions.py (MatMul4Bit,
MatMul8bitLt), functional.py (dequantize_4bit), and peft's tuners/lora/bnb.py. The library itself is not needed.

Left out, being below a hundredth of a layer: the float32 absmax that a doubly quantised weight makes on the way, and
int8's outlier columns, which depend on the data.
"""

from __future__ import annotations

import types
from functools import partial
from typing import Any

import torch
from torch import nn

from . import packed

BLOCK = 64
"""Elements that share a scale (bitsandbytes, quantize_4bit's default blocksize)."""


class _MatMul4Bit(torch.autograd.Function):
    """The packed weight is dequantised to its loaded dtype in both directions. Nothing else is saved, but releases
    before 0.43.2 kept the input as well, which nothing used."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Linear4bit) -> torch.Tensor:
        ctx.layer = layer
        ctx.kept = x if layer.keeps_input else None
        return torch.nn.functional.linear(x, layer.dequantised(x.dtype), layer.bias_for(x))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return torch.matmul(grad, ctx.layer.dequantised(grad.dtype)), None


class _MatMul8Bit(torch.autograd.Function):
    """The input is kept whole; forward makes its int8 copy and an int32 product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Linear8bit) -> torch.Tensor:
        ctx.layer, ctx.shape = layer, x.shape
        rows = x.reshape(-1, x.shape[-1])
        if layer.recomputed:
            ctx.save_for_backward(rows)  # checkpointing drops it
        else:
            ctx.kept = rows
        half = rows.to(torch.float16)
        small = torch.empty_like(half, dtype=torch.int8)
        scales = half.new_empty(half.shape[0], dtype=torch.float32)
        product = half.new_empty((half.shape[0], layer.out_features), dtype=torch.int32)
        del half
        out = torch.empty_like(product, dtype=torch.float16)
        del product, small, scales
        out = out.to(x.dtype)
        return out.reshape(*x.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        dtype = (ctx.saved_tensors[0] if ctx.layer.recomputed else ctx.kept).dtype
        whole = torch.empty_like(ctx.layer.weight, dtype=dtype)
        rows = grad.reshape(-1, grad.shape[-1]).to(dtype)
        return torch.matmul(rows, whole).view(ctx.shape), None


class _Quantised(nn.Linear):
    """A frozen linear layer with a quantised weight of `bytes_per_element`."""

    def __init__(self, original: Any, bytes_per_element: float) -> None:
        nn.Module.__init__(self)
        shape = tuple(original.weight.shape)
        if not isinstance(original, nn.Linear):  # GPT-2's Conv1D keeps its weight the other way round
            shape = shape[::-1]
        self.out_features, self.in_features = shape
        self.loaded = original.weight.dtype
        self.weight = nn.Parameter(torch.empty(shape, dtype=torch.uint8, device="meta"), requires_grad=False)
        self.weight._preflight_bytes = bytes_per_element
        self.bias = original.bias
        if self.bias is not None:
            self.bias.requires_grad_(False)


class Linear4bit(_Quantised):
    """nf4 or fp4: half a byte an element, and its scales."""

    def __init__(
        self, original: Any, compute: torch.dtype | None, keeps_input: bool, loaded: torch.dtype | None = None
    ) -> None:
        super().__init__(original, 0.5)
        self.loaded = loaded or self.loaded
        self.keeps_input = keeps_input
        self.compute = compute
        shape = self.weight.shape
        # A scale belongs to a block of elements; the shape is the weight's so that its size is known in its dimensions.
        self.absmax = nn.Parameter(torch.empty(shape, dtype=torch.uint8, device="meta"), requires_grad=False)
        self.absmax._preflight_bytes = 4 / BLOCK

    def dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_like(self.weight, dtype=self.loaded).to(dtype)

    def bias_for(self, x: torch.Tensor) -> torch.Tensor | None:
        return None if self.bias is None else self.bias.to(x.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.dtype
        if self.compute is not None:
            x = x.to(self.compute)
        return _MatMul4Bit.apply(x, self).to(given)


class Linear8bit(_Quantised):
    """LLM.int8(): a byte an element and a float32 scale for each row."""

    def __init__(self, original: Any, recomputed: bool = False) -> None:
        super().__init__(original, 1)
        self.recomputed = recomputed
        """Under checkpointing that is reentrant, and keeps nothing of the first forward."""
        self.scale = nn.Parameter(torch.empty(self.out_features, device="meta"), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _MatMul8Bit.apply(x, self)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def quantise(model: nn.Module, options: dict[str, Any], dtypes: dict[str, torch.dtype]) -> None:
    """Replace every linear layer but the head, then cast the rest as k-bit preparation does where asked for.

    `options`: {"type": "4bit" or "int8", "compute" ("fp32", "bf16", "fp16" or None), "upcast_rest", "head" (quantise it
    as well), "keeps_input", "recomputed", "loaded" (the dtype that weights had when they were quantised; None: the
    model's)}, or a type of packed.KINDS with "bits", "group", "backend" and "upcast_rest".
    """
    kept = set() if options.get("head") else kept_whole(model)
    keeps, loaded = bool(options.get("keeps_input")), dtypes.get(options.get("loaded") or "")
    compute = dtypes.get(options.get("compute") or "")
    eight = partial(Linear8bit, recomputed=bool(options.get("recomputed")))
    for name, module in list(model.named_modules()):
        for child, layer in list(module.named_children()):
            path = f"{name}.{child}" if name else child
            if not _is_linear(layer) or path in kept:
                continue
            made: nn.Module
            if options["type"] in packed.KINDS:
                made = packed.KINDS[options["type"]](layer, options)
            else:
                made = eight(layer) if options["type"] == "int8" else Linear4bit(layer, compute, keeps, loaded)
            setattr(module, child, made)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        half = parameter.dtype in (torch.float16, torch.bfloat16)
        if options.get("upcast_rest") and half:
            parameter.data = parameter.data.to(torch.float32)


def _is_linear(layer: nn.Module) -> bool:
    """Layers that transformers replaces (integrations/bitsandbytes.py: nn.Linear, its subclasses, GPT-2's Conv1D)."""
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


def kept_whole(model: nn.Module) -> set[str]:
    """Names of the layers that transformers does not quantise (integrations/bitsandbytes.py: the output embeddings, or
    what stands in their place: the last module)."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    names = {name for name, module in model.named_modules() if head is not None and module is head}
    last = [name for name, _ in model.named_children()][-1:]
    return names or {
        name for name, _ in model.named_modules() if last and (name == last[0] or name.startswith(last[0] + "."))
    }


def adapt_forwards(model: nn.Module, autocast: bool) -> None:
    """Give adapters over quantised layers the forward that peft gives them (tuners/lora/bnb.py, adalora/bnb.py)."""
    for module in model.modules():
        base = getattr(module, "base_layer", None)
        if not hasattr(module, "lora_A"):
            continue
        if type(base) in packed.KINDS.values():
            packed.adapt_forward(module, autocast)
        elif isinstance(base, _Quantised):
            module._preflight_autocast = autocast
            module.forward = types.MethodType(_adalora if hasattr(module, "lora_E") else _lora_forward, module)


def dequantise_for_dora() -> None:
    """DoRA reads the weights themselves (peft, utils/integrations.py: dequantize_module_weight): 4-bit ones come back
    in the dtype that they were loaded in, int8 times its scales in fp32 (bitsandbytes, int8_vectorwise_dequant)."""
    from peft.tuners.lora import dora

    real = dora.dequantize_module_weight
    if getattr(real, "_preflight", False):
        return

    def dequantised(module: Any) -> Any:
        base = module.get_base_layer() if hasattr(module, "get_base_layer") else module
        if isinstance(base, Linear4bit):
            return torch.empty_like(base.weight, dtype=base.loaded)
        if isinstance(base, Linear8bit):
            scaled = torch.empty_like(base.weight, dtype=torch.float32)
            return torch.empty_like(scaled)
        return real(module)

    dequantised._preflight = True  # type: ignore[attr-defined]
    dora.dequantize_module_weight = dequantised


def _lora_forward(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    result = self.base_layer(x, *args, **kwargs)
    if isinstance(self.base_layer, Linear4bit):
        result = result.clone()
    for name in self.active_adapters:
        if name not in self.lora_A:
            continue
        expected = result.dtype
        plain = not self._preflight_autocast
        if plain:
            x = x.to(self.lora_A[name].weight.dtype)
        if name in getattr(self, "lora_variant", ()):
            result = self.lora_variant[name].forward(self, active_adapter=name, x=x, result=result)
            result = result.to(expected) if plain else result
            continue
        out = self.lora_B[name](self.lora_A[name](self.lora_dropout[name](x))) * self.scaling[name]
        if plain:
            out = out.to(expected)
        result = result + out
    return result


def _adalora(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    result = self.base_layer(x, *args, **kwargs)
    if isinstance(self.base_layer, Linear4bit):
        result = result.clone()
    for name in self.active_adapters:
        if name not in self.lora_A:
            continue
        expected, plain = result.dtype, not self._preflight_autocast
        first, second, values = self.lora_A[name], self.lora_B[name], self.lora_E[name]
        if plain:
            x = x.to(first.dtype)
        out = self.lora_dropout[name](x) @ (first * values).T @ second.T
        if plain:
            out = out.to(expected)
        out = out * self.scaling[name] / (self.ranknum[name] + 1e-5)
        result = result + out
    return result
