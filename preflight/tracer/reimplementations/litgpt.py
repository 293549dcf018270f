"""Our re-implementation of litgpt's decoder and LoRA layers: which tensors a step makes, keeps and frees.

One model class serves every checkpoint that litgpt converts (litgpt/model.py, litgpt/lora.py), and differs from
transformers' models in what stays for backward: one projection makes queries, keys and values, and since values stay
a view of its output, the whole output stays; keys and values are repeated before attention; the head runs over 128
positions at a time, and so does the loss (litgpt/utils.py, chunked_cross_entropy), on logits that Fabric made fp32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .. import quantized

CHUNK = 128
"""Positions that the head takes at a time (litgpt/finetune/lora.py: lm_head_chunk_size), and rows of the loss."""
PROMPT, PROMPTED_FROM = 10, 2
"""Positions of LLaMA-Adapter's prompts, and the first layer that has one (litgpt/adapter.py: adapter_prompt_length,
adapter_start_layer)."""


class RMSNorm(nn.Module):
    """In fp32 since October 2023 (`widens`); before, in the dtype of its input."""

    def __init__(self, size: int, widens: bool, offset: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.widens, self.offset = widens, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.dtype
        wide = x.float() if self.widens else x
        mean = torch.mean(wide * wide, dim=-1, keepdim=True)
        normed = wide * torch.rsqrt(mean + 1e-5)
        weight = 1 + self.weight if self.offset else self.weight
        return (normed * (weight.float() if self.widens else weight)).to(given)


class LoRA(nn.Module):
    """A linear layer with a low-rank branch; `parts`: output widths of the parts of a fused projection that have one
    and are padded with zeros to the rest (None: the whole output has one)."""

    def __init__(self, into: int, out: int, bias: bool, rank: int, dropout: float, parts: list[int] | None) -> None:
        super().__init__()
        self.linear = nn.Linear(into, out, bias=bias)
        self.parts, self.rank = parts, rank
        if rank:
            self.lora_dropout = nn.Dropout(dropout)
            self.lora_A = nn.Parameter(torch.empty(rank * (len(parts) if parts else 1), into))
            self.lora_B = nn.Parameter(torch.empty(sum(parts) if parts else out, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plain = self.linear(x)
        if not self.rank:
            return plain
        if self.parts is None:
            return plain + (self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)) * 2.0
        low = F.linear(self.lora_dropout(x), self.lora_A).transpose(-2, -1)
        pieces = zip(low.chunk(len(self.parts), dim=1), self.lora_B.unsqueeze(-1).split(self.parts), strict=True)
        high = (
            torch.cat([F.conv1d(a, b) for a, b in pieces], dim=1)
            if len(set(self.parts)) > 1
            else F.conv1d(low, self.lora_B.unsqueeze(-1), groups=len(self.parts))
        )
        return plain + self._padded(high.transpose(-2, -1)) * 2.0

    def _padded(self, x: torch.Tensor) -> torch.Tensor:
        assert self.parts is not None
        width = self.linear.out_features
        if sum(self.parts) == width:
            return x
        x = x.transpose(0, 1)
        rows = x.new_zeros((*x.shape[:-1], width)).view(-1, width)
        at = torch.zeros(sum(self.parts), dtype=torch.int64, device=x.device)
        rows = rows.index_copy(1, at, x.reshape(-1, sum(self.parts)))
        return rows.view((*x.shape[:-1], width)).transpose(0, 1)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).to(dtype=x.dtype)


class Attention(nn.Module):
    """One projection to queries, keys and values of all groups, and one back; `prompted`: with a learnt prompt beside
    its input (litgpt/adapter.py)."""

    def __init__(self, c: dict[str, Any], lora: Any, prompted: bool) -> None:
        super().__init__()
        self.c, self.prompted = c, prompted
        if prompted:
            self.adapter_wte = nn.Embedding(PROMPT, c["n_embd"])
            self.gating_factor = nn.Parameter(torch.empty(1, 1, c["n_head"], 1))
        queries, shared = c["n_head"] * c["head_size"], c["n_query_groups"] * c["head_size"]
        chosen = [w for name, w in (("query", queries), ("key", shared), ("value", shared)) if name in c["adapted"]]
        self.attn = lora(c["n_embd"], queries + 2 * shared, bool(chosen), chosen or None)
        self.proj = lora(queries, c["n_embd"], "projection" in c["adapted"], None)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        c = self.c
        batch, length, _ = x.shape
        groups, size, rotated = c["n_query_groups"], c["head_size"], c["rope_n_elem"]
        each = c["n_head"] // groups
        fused = self.attn(x).view(batch, length, groups, each + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = fused.split((each, 1, 1), dim=2)
        if groups != c["n_head"]:
            k, v = (one.expand(batch, groups, each, length, size) for one in (k, v))
        q, k, v = (one.reshape(batch, -1, length, size) for one in (q, k, v))
        turned_q, turned_k = (_rotate(one[..., :rotated], cos, sin) for one in (q, k))
        q = torch.cat((turned_q, q[..., rotated:]), dim=-1)
        k = torch.cat((turned_k, k[..., rotated:]), dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        if self.prompted:
            y = y + self.gating_factor * self._prompt(q)
        return self.proj(y.reshape(batch, length, c["n_head"] * size))

    def _prompt(self, q: torch.Tensor) -> torch.Tensor:
        """Attention to the prompt: its keys and values are made by the layer's own projection. Several samples share
        them, which no fused kernel takes as they are; here they are spread."""
        c = self.c
        groups, size = c["n_query_groups"], c["head_size"]
        each = c["n_head"] // groups
        fused = self.attn(self.adapter_wte.weight.reshape(1, PROMPT, c["n_embd"]))
        _, k, v = fused.view(1, PROMPT, groups, each + 2, size).permute(0, 2, 3, 1, 4).split((each, 1, 1), dim=2)
        if groups != 1:
            k, v = (one.repeat_interleave(each, dim=2) for one in (k, v))
        k, v = (one.reshape(1, -1, PROMPT, size).expand(q.shape[0], c["n_head"], PROMPT, size) for one in (k, v))
        mask = torch.ones(q.shape[2], PROMPT, dtype=torch.bool, device=q.device)
        return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)


class MLP(nn.Module):
    """Two layers with a GELU between them, or with a gate parallel to the first."""

    def __init__(self, c: dict[str, Any], lora: Any) -> None:
        super().__init__()
        self.kind, adapted = c["mlp"], "mlp" in c["adapted"]
        self.fc_1 = lora(c["n_embd"], c["intermediate_size"], adapted, None)
        if self.kind != "gelu":
            self.fc_2 = lora(c["n_embd"], c["intermediate_size"], adapted, None)
        self.proj = lora(c["intermediate_size"], c["n_embd"], adapted, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_1 = self.fc_1(x)
        if self.kind == "gelu":
            return self.proj(F.gelu(x_1))
        x_2 = self.fc_2(x)
        return self.proj((F.silu if self.kind == "silu" else F.gelu)(x_1) * x_2)


class Block(nn.Module):
    """Attention and MLP, one after the other or side by side."""

    def __init__(self, c: dict[str, Any], lora: Any, norm: Any, prompted: bool) -> None:
        super().__init__()
        self.parallel = c["parallel_residual"]
        self.norm_1 = norm()
        self.attn = Attention(c, lora, prompted)
        self.shared = c["shared_attention_norm"]
        if not self.shared:
            self.norm_2 = norm()
        self.mlp = MLP(c, lora)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        normed = self.norm_1(x)
        attended = self.attn(normed, cos, sin)
        if self.parallel:
            normed = normed if self.shared else self.norm_2(x)
            return self.mlp(normed) + attended + x
        x = attended + x
        return self.mlp(self.norm_2(x)) + x


class Output(dict[str, Any]):
    """The pieces of logits; the loss is made of them when it is asked for, after the model has returned."""

    loss_apart = True

    def __init__(self, logits: list[torch.Tensor], labels: torch.Tensor) -> None:
        super().__init__(logits=logits)
        self.labels = labels

    @property
    def loss(self) -> torch.Tensor:
        """The cross-entropy of the pieces (litgpt/utils.py, chunked_cross_entropy)."""
        logits, shifted = self["logits"], self.labels[..., 1:]
        if len(logits) > 1:
            flat = [piece.reshape(-1, piece.size(-1)) for piece in (*logits[:-1], logits[-1][..., :-1, :])]
            wanted = [piece.reshape(-1) for piece in shifted.split(CHUNK, dim=1)]
        else:  # litgpt/finetune/full.py: the loss alone is in chunks, of rows
            flat = list(logits[0][..., :-1, :].reshape(-1, logits[0].size(-1)).split(CHUNK))
            wanted = list(shifted.reshape(-1).split(CHUNK))
        losses = [F.cross_entropy(a, b, reduction="none") for a, b in zip(flat, wanted, strict=False)]
        return torch.cat(losses).sum() / max(1, shifted.numel())


class GPT(nn.Module):
    """`config`: n_layer, n_embd, n_head, n_query_groups, head_size, rope_n_elem, intermediate_size, vocab, bias,
    head_bias, norm ("rms", "rms+1", "layer"), widens, mlp ("silu", "geglu", "gelu"), parallel_residual,
    shared_attention_norm, scale_embeddings; `adapted`: the LoRA switches that are on; rank, dropout; `prompted`: with
    LLaMA-Adapter's prompts."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        c = self.c = config

        def lora(into: int, out: int, adapted: bool, parts: list[int] | None, bias: bool = c["bias"]) -> LoRA:
            return LoRA(into, out, bias, c["rank"] if adapted else 0, c["dropout"], parts)

        def norm() -> nn.Module:
            if c["norm"] == "layer":
                return nn.LayerNorm(c["n_embd"])
            return RMSNorm(c["n_embd"], c["widens"], c["norm"] == "rms+1")

        self.lm_head = lora(c["n_embd"], c["vocab"], "head" in c["adapted"], None, c["head_bias"])
        self.wte = nn.Embedding(c["vocab"], c["n_embd"])
        self.h = nn.ModuleList(Block(c, lora, norm, c["prompted"] and n >= PROMPTED_FROM) for n in range(c["n_layer"]))
        self.ln_f = norm()

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Output:
        length = input_ids.shape[1]
        cos, sin = (torch.zeros(length, self.c["rope_n_elem"], device=input_ids.device) for _ in range(2))
        x = self.wte(input_ids)
        if self.c["scale_embeddings"]:
            x = x * (self.c["n_embd"] ** 0.5)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        in_pieces = (self.c["rank"] or self.c["prompted"]) and self.training
        pieces = x.split(CHUNK, dim=1) if in_pieces else [x]
        # Fabric hands a model's outputs out in the default dtype (lightning/fabric/plugins/precision: convert_output).
        logits = _widened([self.lm_head(piece) for piece in pieces])
        return Output(logits, input_ids if labels is None else labels)


def _widened(given: list[torch.Tensor]) -> list[torch.Tensor]:
    return [one.float() for one in given]


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """The model of a description on meta, with LoRA layers, and quantised, where the setup has it."""
    peft = setup.get("peft") or {}
    prompted = peft.get("method") == "llama-adapter"
    with torch.device("meta"):
        made = GPT(
            {
                **model["config"],
                "adapted": () if prompted else tuple(peft.get("targets") or ()),
                "rank": 0 if prompted else peft.get("r", 0),
                "prompted": prompted,
                "dropout": 0.05 if peft.get("dropout") else 0.0,
            }
        )
    made = made.train().to(dtypes[setup.get("weights", "fp32")])
    if setup.get("quantization"):
        quantized.quantise(made, setup["quantization"], dtypes)
    if peft:  # litgpt/lora.py, mark_only_lora_as_trainable; litgpt/adapter.py, mark_only_adapter_as_trainable
        trained = ("adapter_wte", "gating_factor") if prompted else ("lora_",)
        for name, parameter in made.named_parameters():
            if parameter.is_floating_point():
                parameter.requires_grad_(any(part in name for part in trained))
    return made


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta, without a mask. Point: b, s."""
    ids = (torch.zeros(point["b"], point["s"], dtype=torch.int64, device="meta") for _ in range(2))
    return dict(zip(("input_ids", "labels"), ids, strict=True))
