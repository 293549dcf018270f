"""Compiled code that is not there or cannot run: flash-attn's kernels, traces of torch.jit, counters of operations.

flash-attn's functions are those of torch's own copy, which is built from the same source
(aten/src/ATen/native/transformers/cuda/flash_attn): what it keeps for backward and its workspaces are those of the
package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from ..patches import replace, wrap
from ..tape import Tape

PACKAGE = "flash_attn"
_ALIGNMENT = 8
"""Elements that a head is padded to (flash_attn_interface.py, FlashAttnFunc)."""


def attention(q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False,
              window_size: Any = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
              return_attn_probs: bool = False) -> Any:  # fmt: skip
    """`flash_attn_func`: batch, length, heads, size of a head."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    head = q.shape[-1]
    spare = -head % _ALIGNMENT
    if spare:
        q, k, v = (torch.nn.functional.pad(one, (0, spare)) for one in (q, k, v))
    scale = softmax_scale or head**-0.5
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, causal, False, scale=scale)
    out = found[0].transpose(1, 2)[..., :head]
    return (out, found[1], None) if return_attn_probs else out


def of_lengths(q: Any, k: Any, v: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None,
               max_seqlen_k: Any = None, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False,
               window_size: Any = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
               return_attn_probs: bool = False, block_table: Any = None) -> Any:  # fmt: skip
    """`flash_attn_varlen_func`: sequences one after another, without padding."""
    q, k, v = (one.unsqueeze(0) for one in (q, k, v))
    found = attention(q, k, v, dropout_p, softmax_scale, causal)
    return (found.squeeze(0), None, None) if return_attn_probs else found.squeeze(0)


def packed(qkv: Any, *args: Any, **kwargs: Any) -> Any:
    """`flash_attn_qkvpacked_func`."""
    q, k, v = qkv.unbind(-3)
    return attention(q, k, v, *args, **kwargs)


def packed_of_lengths(qkv: Any, cu_seqlens: Any, max_seqlen: Any, *args: Any, **kwargs: Any) -> Any:
    """`flash_attn_varlen_qkvpacked_func`."""
    q, k, v = qkv.unbind(-3)
    return of_lengths(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs)


def packed_keys(q: Any, kv: Any, *args: Any, **kwargs: Any) -> Any:
    """`flash_attn_kvpacked_func`."""
    k, v = kv.unbind(-3)
    return attention(q, k, v, *args, **kwargs)


def unpad_input(hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> Any:
    """`bert_padding.unpad_input`: the tokens that a mask picks."""
    lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(attention_mask.flatten(), as_tuple=False).flatten()
    longest = int(lengths.max().item())
    sums = torch.nn.functional.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, sums, longest, lengths


def index_first_axis(hidden_states: Any, indices: Any) -> Any:
    """`bert_padding.index_first_axis`."""
    return hidden_states[indices]


def pad_input(hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    """`bert_padding.pad_input`: the tokens at their places again."""
    out = hidden_states.new_zeros((batch * seqlen, *hidden_states.shape[1:]))
    out[indices] = hidden_states
    return out.view(batch, seqlen, *hidden_states.shape[1:])


_NAMES: dict[str, dict[str, Any]] = {
    PACKAGE: {
        "flash_attn_func": attention, "flash_attn_varlen_func": of_lengths, "flash_attn_qkvpacked_func": packed,
        "flash_attn_varlen_qkvpacked_func": packed_of_lengths, "flash_attn_kvpacked_func": packed_keys,
        "__version__": "2.8.3",
    },
    "flash_attn.bert_padding": {
        "unpad_input": unpad_input, "pad_input": pad_input, "index_first_axis": index_first_axis,
    },
}  # fmt: skip
_NAMES["flash_attn.flash_attn_interface"] = _NAMES[PACKAGE]


class FlashAttention:
    """Where programs and libraries find these functions."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def modules(self) -> dict[str, Any]:
        """What fills each module of the package."""
        return dict.fromkeys(_NAMES, self._fill)

    def _fill(self, module: Any) -> None:
        self._said()
        for name, value in _NAMES[module.__name__].items():
            setattr(module, name, value)

    def _said(self) -> None:
        self._tape.assume(
            "flash-attn is not installed: its kernels were counted as those of torch's flash attention, which have the "
            "same source"
        )

    def transformers(self, module: Any) -> None:
        """transformers.modeling_flash_attention_utils: the functions by the name of an implementation."""

        def found(real: Any, implementation: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(implementation, *args, **kwargs)
            except Exception:
                if implementation is not None and "flash" not in str(implementation):
                    raise
            self._said()
            if implementation is not None:  # before transformers 5, it may not be said which
                _register(implementation)
            cached = (None,) if hasattr(module, "_flash_with_kvcache_fn") else ()  # since transformers 5
            return attention, of_lengths, *cached, pad_input, unpad_input

        wrap(module, "_lazy_imports", found)

    def models(self, module: Any) -> None:
        """transformers.modeling_utils: whether a model may use it. What a model cannot is refused as before."""

        def allowed(real: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(model, *args, **kwargs)
            except ImportError:
                self._said()
                return True

        def registered(real: Any, implementation: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(implementation, *args, **kwargs)
            except Exception:
                if "flash" not in str(implementation):
                    raise
            self._said()
            _register(implementation)
            return None

        wrap(module, "load_and_register_kernel", registered)  # before transformers 5
        for name in ("_flash_attn_can_dispatch", "_flash_attn_2_can_dispatch"):  # since transformers 5, and before
            wrap(module.PreTrainedModel, name, allowed)


def _register(implementation: str) -> None:
    """The attention and the mask of a kernel of the hub: those of flash attention."""
    functions = importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    masks = importlib.import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    for known in (functions, masks):
        if implementation not in known.valid_keys():
            known.register(implementation, known["flash_attention_2"])


OPERATIONS = 10**9


def tracing(module: Any, tape: Tape) -> None:
    """torch.jit: `trace` and `script` give the module back."""

    def traced(func: Any = None, *_: Any, **__: Any) -> Any:
        tape.assume("torch.jit was left out: the module runs as it is written", "train.compile")
        return func

    replace(module, "trace", traced)


def counted(name: str) -> Callable[[Any, Tape], None]:
    """A function of a library that counts operations."""

    def hook(module: Any, tape: Tape) -> None:
        def answer(*_: Any, **__: Any) -> int:
            tape.assume(f"{module.__name__.partition('.')[0]} was left out: it said {OPERATIONS} operations")
            return OPERATIONS

        replace(module, name, answer)

    return hook
