"""Encoders of texts trained to embed them, as sentence-transformers does it (losses/MultipleNegativesRankingLoss.py,
losses/CachedMultipleNegativesRankingLoss.py, models/Pooling.py): one forward pass for each text of a sample, the mean
of its tokens, and cross-entropy over the similarities of all texts of a batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from . import adapters
from .building import Output, freeze, from_config
from .cuda import Cuda

SCALE = 20.0


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"architecture", "config", "mini" (texts that run at a time under a
    cached loss; None: all at once)}; `setup`: as `models.build` has it."""
    import transformers

    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    spelled = next((s for s in (model["architecture"], model["architecture"].replace("-", "_")) if s in known), None)
    if spelled is None:
        raise ValueError(f"transformers {transformers.__version__} has no {model['architecture']}")
    config = transformers.AutoConfig.for_model(spelled, **model["config"])
    with torch.device("meta"):
        inner = from_config(transformers.AutoModel, config, setup)
    inner = inner.train().to(dtypes[setup.get("weights", "fp32")])
    freeze(inner, setup.get("frozen", ()))
    if setup.get("peft"):
        inner = adapters.adapt(inner, {**setup["peft"], "half": dtypes.get(setup["peft"].get("half") or "")}, "")
    return Cached(inner, model["mini"]) if model.get("mini") else Embedding(inner)


class Embedding(nn.Module):
    """An encoder, its pooling, and the loss of all texts at once."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, texts: list[dict[str, torch.Tensor]]) -> Output:
        found = [self.embed(text) for text in texts]
        scores = similarities(found[0], torch.cat(found[1:])) * SCALE
        return Output(F.cross_entropy(scores, _own(scores)))

    def embed(self, text: dict[str, torch.Tensor]) -> torch.Tensor:
        """The mean of a text's tokens; tokens and mask stay among its features (`features.update`)."""
        ids, mask = text["input_ids"], text["attention_mask"]
        tokens = self.inner(input_ids=ids, attention_mask=mask).last_hidden_state
        text["token_embeddings"] = tokens
        wide = mask.unsqueeze(-1).expand(tokens.size()).to(tokens.dtype)
        total = torch.sum(tokens * wide, 1)
        count = torch.clamp(wide.sum(1), min=1e-9)
        return total / count

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """As transformers' models have it."""
        self.inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs=gradient_checkpointing_kwargs)


class Cached(Embedding):
    """Gradients by way of the embeddings: all texts are embedded without a graph, `mini` at a time, then the loss gives
    the embeddings' gradients, then each `mini` texts run again with a graph. However many there are, each after the
    first does as the first: two are traced, and the other embeddings are there."""

    def __init__(self, inner: nn.Module, mini: int) -> None:
        super().__init__(inner)
        self.mini = mini

    def forward(self, texts: list[dict[str, torch.Tensor]]) -> Output:
        rows = texts[0]["input_ids"].shape[0]
        starts = range(0, min(rows, 2 * self.mini), self.mini)
        found = []
        for text in texts:
            pieces = []
            for start in starts:
                with torch.no_grad():
                    pieces.append(self.embed(self._piece(text, start)).detach().requires_grad_())
            if rows > 2 * self.mini:
                pieces.append(pieces[0].new_empty(rows - 2 * self.mini, pieces[0].shape[1]).requires_grad_())
            found.append(pieces)
        loss = self._embeddings_gradients(found, rows, starts)
        kept = [[piece.grad for piece in pieces] for pieces in found]
        mode = next((m for m in _get_current_function_mode_stack() if isinstance(m, Cuda)), None)

        def again(gradient: torch.Tensor) -> None:
            with torch.enable_grad():
                for text, gradients in zip(texts, kept, strict=True):
                    for start, own in zip(starts, gradients, strict=False):
                        self._once_more(text, start, own, gradient, mode)

        loss.register_hook(again)
        return Output(loss)

    def _piece(self, text: dict[str, torch.Tensor], start: int) -> dict[str, torch.Tensor]:
        return {name: text[name][start : start + self.mini] for name in ("input_ids", "attention_mask")}

    def _embeddings_gradients(self, found: list[list[torch.Tensor]], rows: int, starts: range) -> torch.Tensor:
        first = torch.cat(found[0])
        others = torch.cat([torch.cat(pieces) for pieces in found[1:]])
        losses = []
        for start in starts:
            scores = similarities(first[start : start + self.mini], others) * SCALE
            loss = F.cross_entropy(scores, _own(scores)) * len(scores) / rows
            loss.backward()
            losses.append(loss.detach())
        total: torch.Tensor = sum(losses, start=torch.zeros((), device="meta"))
        return total.requires_grad_()

    def _once_more(self, text: dict[str, torch.Tensor], start: int, own: Any, gradient: Any, mode: Any) -> None:
        if mode is None:
            made = self.embed(self._piece(text, start))
        else:
            with mode.again():
                made = self.embed(self._piece(text, start))
        (torch.dot(made.flatten().to(own.dtype), own.flatten()) * gradient).backward()


def similarities(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Cosines (sentence_transformers.util.cos_sim)."""
    return torch.mm(F.normalize(first, p=2, dim=1), F.normalize(second, p=2, dim=1).transpose(0, 1))


def _own(scores: torch.Tensor) -> torch.Tensor:
    return torch.arange(scores.shape[0], device="meta")


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b (samples), s (tokens of a text)."""
    shape = (point["b"], point["s"])

    def text() -> dict[str, torch.Tensor]:
        return {name: torch.zeros(shape, dtype=torch.int64, device="meta") for name in ("input_ids", "attention_mask")}

    return {"texts": [text() for _ in range(model["texts"])]}
