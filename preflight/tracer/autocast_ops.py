"""CUDA autocast's policy, op by op, as PyTorch publishes it ("CUDA Ops that can autocast to float16", "... to float32",
"... that promote to the widest input type", in the documentation of torch.amp, and aten/src/ATen/autocast_mode.h).

The sets hold the Python-level callables by which each op can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F

_LOWER = """
__matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d conv_tbc _convolution linear matmul mm mv prelu einsum gru_cell lstm_cell
rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
_FLOAT32 = """
__pow__ __rpow__ __rdiv__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist
cosine_similarity cross_entropy_loss dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss
layer_norm log log10 log1p log2 margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss
nll_loss_nd nll_loss2d norm pdist poisson_nll_loss pow reciprocal renorm rsqrt sinh smooth_l1_loss soft_margin_loss
softplus tan triplet_margin_loss frobenius_norm nuclear_norm logit bilinear_upsample
"""
# These take a dtype: autocast passes float32 where the caller gave none, instead of casting the input first.
_FLOAT32_OUT = "softmax log_softmax prod cumprod cumsum sum linalg_vector_norm linalg_matrix_norm special_log_softmax"
_PROMOTE = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot cat stack"


def _callables(names: Iterable[str]) -> frozenset[Callable[..., Any]]:
    """Every builtin of these names; Python wrappers are left out, since what they call is seen by itself."""
    homes = (torch, torch.Tensor, F, torch._C._nn, torch.linalg, torch.special, torch._C._VariableFunctions)
    found = set()
    for name in names:
        for home in homes:
            for spelling in (name, f"{name}_") if home is not torch.Tensor else (name,):
                candidate = getattr(home, spelling, None)
                if callable(candidate) and not spelling.endswith("__" if home is not torch.Tensor else "\0"):
                    found.add(candidate)
    return frozenset(found)


LOWER = _callables(_LOWER.split())
FLOAT32 = _callables(_FLOAT32.split())
FLOAT32_OUT = _callables(_FLOAT32_OUT.split())
PROMOTE = _callables(_PROMOTE.split())
