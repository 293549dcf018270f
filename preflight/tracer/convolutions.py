"""Operations of convolutional networks: the workspaces that CUDA's convolutions allocate through the caching allocator,
which meta kernels do not, and a quick batch normalisation on meta.

cuDNN's tensor-core kernels read channels last. For a weight gradient in NCHW they are given copies of the input, of the
output's gradient and of the result in a workspace (`nchwToNhwc` kernels in any profile), which ATen allocates for as
long as the kernel runs (Conv_v8.cpp, run_conv_plan). Rows of 16 bytes are needed: where the channels do not come to
them (an image's three), the patches are written out with channels rounded up. A kernel of 1x1 is a matrix product and
needs neither; depthwise convolutions are ATen's own kernels and need nothing. Which of the ways that cuDNN has is taken
was told from public runs of image models on an A100 (docs/results/accuracy.md).
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

_ATEN = torch.ops.aten
ROW_BYTES = 16
"""Alignment of tensor-core operands (cuDNN developer guide, "Tensor Core operations": 4 channels in TF32, 8 in 16
bits)."""
TILE, POINTS = 4, 36
"""Winograd's F(4x4, 3x3): a tile of 4x4 results is worked out in 36 points (Lavin and Gray 2015)."""


def winograd(func: Any, args: Any) -> torch.Tensor | None:
    """The workspace of a 3x3 convolution's backward in fp32 on GPUs without TF32, on meta; None where there is none.

    There cuDNN takes the non-fused Winograd algorithm for gradients, whose transforms of input, output and weight lie
    in memory as a whole (cuDNN developer guide, CUDNN_CONVOLUTION_BWD_*_ALGO_WINOGRAD_NONFUSED: stride 1, no groups, no
    dilation).
    """
    if func is not _ATEN.convolution_backward.default:
        return None
    x, weight, stride, groups = args[1], args[2], args[4], args[9]
    if tuple(weight.shape[2:]) != (3, 3) or groups != 1 or any(step != 1 for step in (*stride, *args[6])):
        return None
    tiles = x.shape[0] * -(-x.shape[2] // TILE) * -(-x.shape[3] // TILE)
    return x.new_empty(POINTS * ((weight.shape[0] + weight.shape[1]) * tiles + weight.shape[0] * weight.shape[1]))


def workspace(func: Any, args: Any) -> torch.Tensor | None:
    """The workspace of a convolution's weight gradient, on meta; None where there is none."""
    if func is not _ATEN.convolution_backward.default:
        return None
    gradient, x, weight, groups, wanted = args[0], args[1], args[2], args[9], args[10]
    kernel = tuple(weight.shape[2:])
    depthwise = groups > 1 and groups == x.shape[1]
    if not wanted[1] or weight.dim() != 4 or kernel == (1, 1) or depthwise:
        return None
    row = max(1, ROW_BYTES // x.element_size())
    channels = -(-x.shape[1] // row) * row
    if channels == x.shape[1]:
        elements = x.numel() + gradient.numel() + weight.numel()
    else:
        elements = channels * prod(kernel) * gradient.shape[0] * prod(gradient.shape[2:])
    return x.new_empty(elements)


def batch_norm(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a batch normalisation on meta, without the arithmetic; None for every other operation.

    torch works its shapes out in dozens of small operations, which is most of the time that the trace of a
    convolutional network takes.
    """
    if kwargs or not isinstance(args[0], torch.Tensor) or args[0].device.type != "meta":
        return None
    if func is _ATEN.native_batch_norm.default:
        return _batch_norm_forward(args[0])
    if func is _ATEN.native_batch_norm_backward.default and args[7] and args[2] is not None:
        return _batch_norm_backward(*args)
    return None


def _batch_norm_forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, mean and inverse deviation; the latter two are kept in fp32 for 16-bit inputs."""
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return torch.empty_like(x), x.new_empty(x.shape[1], dtype=wide), x.new_empty(x.shape[1], dtype=wide)


def _batch_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any
) -> tuple[Any, Any, Any]:
    wanted = rest[6]
    channels = x.shape[1]
    return (
        torch.empty_like(x),
        weight.new_empty(channels) if wanted[1] else None,
        weight.new_empty(channels) if wanted[2] else None,
    )
