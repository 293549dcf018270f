"""Our re-implementation of the linear layers of other quantisations than bitsandbytes', on the meta device: the tensors
that each keeps for backward and the temporary ones. The libraries are not needed.

Written after:
gptq         gptqmodel 7.3 nn_modules/qlinear/{torch,tritonv2,__init__}.py: while it trains every kernel multiplies by
             the dequantised weight in plain autograd, which keeps it; auto_gptq 0.8 nn_modules/qlinear/qlinear_{cuda,
             cuda_old,triton,tritonv2}.py
awq          gptqmodel 7.3 gemm_awq.py and AutoAWQ 0.2 modules/linear/gemm.py: the input is kept, the weight is made
             again in backward, and once more for each row of the batch (`.repeat(batch_size, 1, 1)`)
hqq          hqq 0.2 core/quantize.py: HQQMatmulNoCacheMul, Quantizer.dequantize; core/bitpack.py
torchao-int8 torchao 0.9 to 0.17, int8 weights by row: plain autograd over `w.to(x.dtype)`, which keeps it
fp8          transformers 5 integrations/finegrained_fp8.py: FP8LinearFunction, _dequantize_fp8_weight
eetq         transformers 5 integrations/eetq.py: EetqLinearMMFunction, whose backward multiplies by an identity matrix
LoRA         peft 0.18 to 0.21 tuners/lora/{gptq,awq,hqq,eetq,torchao}.py

Left out: tables of a few dozen elements, AWQ's kernel for batches of at most 1,024 tokens.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn

FP8_BLOCK = 128 * 128
"""Elements that share a scale (FineGrainedFP8Config.weight_block_size)."""
HQQ_PACKED = {8: 1.0, 4: 0.5, 3: 4 / 10, 2: 0.25, 1: 0.125}
"""Bytes of an element (hqq, core/bitpack.py): three bits go ten to an int32."""


class _Packed(nn.Linear):
    """A frozen linear layer; its parameters have the weight's shape and the real bytes per element."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        shape = tuple(original.weight.shape)
        if not isinstance(original, nn.Linear):  # GPT-2's Conv1D keeps its weight the other way round
            shape = shape[::-1]
        self.out_features, self.in_features = shape
        loaded = original.weight.dtype
        self.half = loaded if loaded.itemsize == 2 else torch.float16
        self.bits, self.group = options["bits"], options.get("group")
        self.backend = options.get("backend")
        self.weight = _costing(self.bits / 8, shape)
        self.bias = original.bias
        if self.bias is not None:
            self.bias.requires_grad_(False)

    def by_group(self, each: float) -> nn.Parameter:
        """The shared values of a group of elements, of so many bytes; without groups, each output has its own."""
        if self.group is None:
            return _costing(each, (self.out_features,))
        return _costing(each / self.group, tuple(self.weight.shape))

    def dequantised(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The whole weight, (inputs, outputs)."""
        return torch.empty((self.in_features, self.out_features), dtype=dtype or self.half, device="meta")

    def biased(self, out: torch.Tensor) -> torch.Tensor:
        return out if self.bias is None else out + self.bias.to(out.dtype)


def _costing(each: float, shape: tuple[int, ...]) -> nn.Parameter:
    """A parameter of which an element costs so many bytes: its size is known in the weight's dimensions."""
    made = nn.Parameter(torch.empty(shape, dtype=torch.uint8, device="meta"), requires_grad=False)
    made._preflight_bytes = each
    return made


def _like(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=dtype)


class GptqLinear(_Packed):
    """Integers of 32 bits full of weights, packed zeros and 16-bit scales by group, the group of each input."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        self.qzeros, self.scales = self.by_group(self.bits / 8), self.by_group(2)
        self.g_idx = nn.Parameter(torch.empty(self.in_features, dtype=torch.int32, device="meta"), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.backend in ("triton", "tritonv2"):
            out = _GptqTriton.apply(rows, self)
        else:
            weight = _unpacked(self) if self.backend in ("cuda", "cuda-old") else self.dequantised()
            out = torch.matmul(rows, weight if weight.dtype is rows.dtype else weight.to(rows.dtype))
        return self.biased(out.to(x.dtype).reshape(*x.shape[:-1], self.out_features))


def _unpacked(layer: GptqLinear) -> torch.Tensor:
    """auto_gptq's unpacking by PyTorch's operations: shifted in 32 bits, then 8, less the zeros, times the scales."""
    wide = layer.dequantised(torch.int32)
    small = _like(wide, torch.int8)
    del wide
    masked = _like(small, torch.int8)
    del small
    if layer.backend == "cuda":  # scales and zeros are gathered for each input, whatever its group
        scales, zeros = _like(masked, layer.half), _like(masked, torch.int8)
        less = _like(masked, torch.int8)
        del zeros
        weight = _like(less, layer.half)
        del scales
    else:
        less = _like(masked, torch.int8)
        weight = _like(less, layer.half)
    del less, masked
    return weight


class _GptqTriton(torch.autograd.Function):
    """tritonv2 makes the weight again in backward; triton's kernels multiply by packed weights and never make it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: GptqLinear) -> torch.Tensor:
        ctx.layer, ctx.width = layer, x.shape[-1]
        if layer.backend == "triton":
            return x.new_empty(x.shape[0], layer.out_features)
        return x @ layer.dequantised(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if ctx.layer.backend == "triton":
            return grad.new_empty(grad.shape[0], ctx.width), None
        return grad @ ctx.layer.dequantised(grad.dtype).t(), None


class AwqLinear(_Packed):
    """The same by group without an index of inputs."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        self.qzeros, self.scales = self.by_group(self.bits / 8), self.by_group(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.dtype
        out = _Awq.apply(x if given.itemsize == 2 else x.to(self.half), self)
        return out.to(given)


class _Awq(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: AwqLinear) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return layer.biased(torch.matmul(x, layer.dequantised(x.dtype)))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        weight = ctx.layer.dequantised().to(grad.dtype)
        if grad.dim() == 2:
            return torch.matmul(grad, weight.t()), None
        return grad.bmm(weight.transpose(0, 1).unsqueeze(0).repeat(x.shape[0], 1, 1)), None


class HqqLinear(_Packed):
    """Packed bytes; 16-bit zeros and scales by group."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        self.weight._preflight_bytes = HQQ_PACKED[self.bits]
        self.zero, self.scale = self.by_group(2), self.by_group(2)

    def rebuilt(self) -> torch.Tensor:
        """Quantizer.dequantize: unpacked, less the zeros, times the scales; each result lives together with the one
        before. The masked and shifted tensors of unpacking have a byte for several elements and are freed before."""
        whole = self.dequantised()
        less = torch.empty_like(whole)
        weight = torch.empty_like(less)
        del less, whole
        return weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Hqq.apply(x, self)
        return out


class _Hqq(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: HqqLinear) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        weight = layer.rebuilt()
        return layer.biased(torch.matmul(x, weight if weight.dtype is x.dtype else weight.to(x.dtype)))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return torch.matmul(grad, ctx.layer.rebuilt().to(grad.dtype).t()), None


class TorchaoLinear(_Packed):
    """A byte an element and a scale for each row."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        self.scale = nn.Parameter(torch.empty(self.out_features, device="meta"), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.mm(x.reshape(-1, x.shape[-1]), self.dequantised(x.dtype))
        out = product * self.scale.to(product.dtype)
        return self.biased(out.reshape(*x.shape[:-1], self.out_features).to(x.dtype))


class Fp8Linear(_Packed):
    """A byte an element and a float32 scale for a block; the input is quantised on the way."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        self.scale = _costing(4 / FP8_BLOCK, tuple(self.weight.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Fp8.apply(x, self)
        return out


class _Fp8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Fp8Linear) -> torch.Tensor:
        ctx.layer = layer
        small = _like(x, torch.uint8)  # and a scale for each 128 elements, left out
        out = x.new_empty(*x.shape[:-1], layer.out_features)
        del small
        return layer.biased(out)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad @ ctx.layer.dequantised(grad.dtype).t(), None


class EetqLinear(_Packed):
    """A byte an element and a 16-bit scale for each output."""

    def __init__(self, original: Any, options: dict[str, Any]) -> None:
        super().__init__(original, options)
        scales = torch.empty(self.out_features, dtype=torch.float16, device="meta")
        self.weight_scales = nn.Parameter(scales, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Eetq.apply(x, self)
        return out


class _Eetq(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: EetqLinear) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return layer.biased(x.new_empty(*x.shape[:-1], layer.out_features))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        width = ctx.layer.in_features
        wide = torch.empty((width, width), dtype=torch.float32, device="meta")  # torch.eye, made on the CPU
        identity = wide.to(x.dtype)
        del wide
        weight = ctx.layer.dequantised(x.dtype)
        out = grad.matmul(weight.transpose(0, 1))
        del identity
        return out, None


KINDS: dict[str, type[_Packed]] = {
    "gptq": GptqLinear, "awq": AwqLinear, "hqq": HqqLinear, "torchao-int8": TorchaoLinear, "fp8": Fp8Linear,
    "eetq": EetqLinear,
}  # fmt: skip


def adapt_forward(module: Any, autocast: bool) -> None:
    """Give one LoRA layer over such a layer the forward that peft gives it; over torchao's and fp8's it is that of any
    linear layer."""
    forward = _FORWARDS.get(type(module.base_layer))
    if forward is not None:
        module._preflight_autocast = autocast
        module.forward = types.MethodType(forward, module)


def _parts(self: Any) -> list[tuple[Any, Any, Any, float]]:
    names = [name for name in self.active_adapters if name in self.lora_A]
    return [(self.lora_A[n], self.lora_B[n], self.lora_dropout[n], self.scaling[n]) for n in names]


def _gptq_lora(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The input takes the adapter's dtype under autocast, too."""
    result = self.base_layer(x, *args, **kwargs)
    for first, second, dropout, scaling in _parts(self):
        expected = result.dtype
        x = x.to(first.weight.dtype)
        result = result + second(first(dropout(x))) * scaling
        result = result.to(expected)
    return result


def _awq_lora(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    result = self.base_layer(x, *args, **kwargs)
    for first, second, dropout, scaling in _parts(self):
        expected = result.dtype
        if not self._preflight_autocast:
            x = x.to(first.weight.dtype)
        out = second(first(dropout(x)))
        if not self._preflight_autocast:
            out = out.to(expected)
        out = out * scaling
        result = result + out
    return result


def _hqq_lora(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    result = self.base_layer(x, *args, **kwargs)
    for first, second, dropout, scaling in _parts(self):
        expected = result.dtype
        if not self._preflight_autocast:
            x = x.to(first.weight.dtype)
        result = result + second(first(dropout(x))) * scaling
        if not self._preflight_autocast:
            result = result.to(expected)
    return result


_FORWARDS = {GptqLinear: _gptq_lora, AwqLinear: _awq_lora, EetqLinear: _awq_lora, HqqLinear: _hqq_lora}
