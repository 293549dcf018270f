"""Layers with quantised weights: those of preflight's tracer in place of bitsandbytes', whose kernels are not there."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..tape import Tape

NESTED = 256
"""Scales that share a scale where statistics are compressed (bitsandbytes, functional.quantize_4bit)."""


class Layers:
    """The classes of the layers. They are made when they are first asked for: the tracer is loaded by then."""

    def __init__(self, tape: Tape) -> None:
        self._tape, self._made = tape, ()  # type: tuple[Tape, tuple[Any, ...]]

    def _classes(self) -> tuple[Any, ...]:
        if not self._made:
            self._made = _classes(importlib.import_module("preflight_tracer.quantized"))
            self._tape.assume("quantised layers are preflight's own, after bitsandbytes'")
        return self._made

    def bitsandbytes(self, module: Any) -> None:
        """bitsandbytes.nn: its linear layers. Its optimizers run as they are: they have shapes of their own."""
        for name, one in zip(("Linear4bit", "Linear8bitLt"), self._classes()) if hasattr(module, "nn") else ():
            for home in (module.nn, getattr(module.nn, "modules", None)):
                if hasattr(home, name):
                    setattr(home, name, one)

    def quantise(self, model: Any, asked: Callable[[str], Any]) -> Any:
        """A model of transformers with its linear layers but the head replaced, on the GPU, as `from_pretrained`
        returns it. `asked`: an option of its BitsAndBytesConfig."""
        four, eight = self._classes()
        kept = set(asked("llm_int8_skip_modules") or ()) | importlib.import_module(
            "preflight_tracer.quantized"
        ).kept_whole(model)
        for name, home in list(model.named_modules()):
            for child, layer in list(home.named_children()):
                path = f"{name}.{child}" if name else child
                if not isinstance(layer, nn.Linear) or path in kept or child in kept:
                    continue
                shape = (layer.in_features, layer.out_features, layer.bias is not None)
                if asked("load_in_4bit"):
                    made = four(*shape, asked("bnb_4bit_compute_dtype"), asked("bnb_4bit_use_double_quant"))
                else:
                    made = eight(*shape)
                made.weight, made.bias = layer.weight, layer.bias
                setattr(home, child, made)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model.is_loaded_in_4bit, model.is_loaded_in_8bit = bool(asked("load_in_4bit")), not asked("load_in_4bit")
        return model.cuda()


def _classes(quantized: Any) -> tuple[Any, ...]:
    def applied(self: Any, fn: Any, recurse: bool = True) -> Any:
        nn.Linear._apply(self, fn, recurse)
        if self.weight.is_cuda and self.weight.is_floating_point():
            self.pack()
        return self

    class Linear4bit(quantized.Linear4bit):
        """Packed when it comes onto the GPU."""

        weight: Any

        def __init__(
            self, inputs: int, outputs: int, bias: bool = True, compute_dtype: Any = None,
            compress_statistics: bool = True, quant_type: str = "fp4", *_: Any, **__: Any,
        ) -> None:  # fmt: skip
            nn.Linear.__init__(self, inputs, outputs, bias)
            self.weight.requires_grad_(False)
            self.compute_dtype = self.compute = compute_dtype
            self.keeps_input, self.nested, self.quant_type = False, compress_statistics, quant_type

        _apply = applied

        def pack(self) -> None:
            whole = self.weight
            self.loaded = whole.dtype
            made = {"dtype": torch.float32, "device": whole.device}
            packed = torch.empty((whole.numel() + 1) // 2, 1, dtype=torch.uint8, device=whole.device)
            scales = torch.empty(-(-whole.numel() // quantized.BLOCK), **made)
            state = [torch.empty(16, **made)]
            if self.nested:
                few = torch.empty_like(scales, dtype=torch.uint8)
                state += [few, torch.empty(-(-scales.numel() // NESTED), **made), torch.empty(256, **made)]
                state.append(torch.empty((), **made))
            else:
                state.append(scales)
            weight = nn.Parameter(packed, requires_grad=False)
            weight.quant_state = types.SimpleNamespace(tensors=state, shape=whole.shape, dtype=whole.dtype)
            weight.compress_statistics, weight.quant_type, weight.bnb_quantized = self.nested, self.quant_type, True
            self.weight = weight

        def dequantised(self, dtype: Any) -> Any:
            shape = self.weight.quant_state.shape
            return torch.empty(shape, dtype=self.loaded, device=self.weight.device).to(dtype)

    class Linear8bit(quantized.Linear8bit):
        """Made int8 when it comes onto the GPU."""

        weight: Any

        def __init__(
            self, inputs: int, outputs: int, bias: bool = True, has_fp16_weights: bool = False, threshold: float = 0.0,
            *_: Any, **__: Any,
        ) -> None:  # fmt: skip
            nn.Linear.__init__(self, inputs, outputs, bias)
            self.weight.requires_grad_(False)
            self.state = types.SimpleNamespace(has_fp16_weights=has_fp16_weights, threshold=threshold)
            self.index = None

        _apply = applied

        def pack(self) -> None:
            self.scale = torch.empty(self.out_features, dtype=torch.float32, device=self.weight.device)
            packed = torch.empty_like(self.weight, dtype=torch.int8)
            self.weight = nn.Parameter(packed, requires_grad=False)

    return Linear4bit, Linear8bit
