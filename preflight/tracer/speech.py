"""Models of raw sound (wav2vec 2.0, HuBERT, WavLM, data2vec-audio): CTC fine-tuning and classification.

The loss is computed here from the model's logits as transformers does it (loss/loss_utils.py and `forward` of the CTC
heads), because its own code asks for values of the labels, and the kernel has no counterpart on meta. Layers are never
dropped and no feature is masked (LayerDrop, SpecAugment): that is the most that a step needs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from . import adapters
from .building import Output, from_config
from .losses_without_data import Ctc

HEADS = {"ctc": "AutoModelForCTC", "classification": "AutoModelForAudioClassification"}
STRIDE, SPARE = 320, 80
"""Samples of a frame, and those that the first needs beyond (kernels 10, 3, 3, 3, 3, 2, 2; strides 5 and 2)."""
NONE_LEFT_OUT = {"layerdrop": 0.0, "apply_spec_augment": False, "mask_time_prob": 0.0, "mask_feature_prob": 0.0}


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"architecture", "config", "head" (of HEADS)}; `setup`: as
    `models.build` has it, and frozen: ["feature_encoder"] where the convolutions are not trained.

    Raises ValueError for what cannot be built.
    """
    import transformers

    config = transformers.AutoConfig.for_model(model["architecture"], **{**model["config"], **NONE_LEFT_OUT})
    with torch.device("meta"):
        inner = from_config(getattr(transformers, HEADS[model["head"]]), config, setup)
    inner = inner.train().to(dtypes[setup.get("weights", "fp32")])
    if setup.get("frozen"):
        inner.freeze_feature_encoder()
    if setup.get("peft"):
        inner = adapters.adapt(inner, {**setup["peft"], "half": dtypes.get(setup["peft"].get("half") or "")}, "")
    return Listening(inner, model["head"])


class Listening(nn.Module):
    """A model and its loss."""

    def __init__(self, inner: nn.Module, head: str) -> None:
        super().__init__()
        self.inner, self.head = inner, head

    def forward(self, input_values: torch.Tensor, labels: torch.Tensor, **mask: torch.Tensor) -> Output:
        logits = self.inner(input_values, **mask).logits
        if self.head != "ctc":
            return Output(F.cross_entropy(logits, labels), logits=logits)
        log_probs = F.log_softmax(logits, dim=-1, dtype=torch.float32).transpose(0, 1)
        losses: torch.Tensor = Ctc.apply(log_probs, labels.shape[1])
        return Output(losses.sum(), logits=logits)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """As transformers' models have it."""
        self.inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs=gradient_checkpointing_kwargs)


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, w (frames of sound), t (labels of one recording)."""
    b, s = point["b"], STRIDE * point["w"] + SPARE
    sound = torch.zeros(b, s, dtype=dtype, device="meta")
    shape = (b, point["t"]) if model["head"] == "ctc" else (b,)
    found = {"input_values": sound, "labels": torch.zeros(shape, dtype=torch.int64, device="meta")}
    if model.get("mask"):
        found["attention_mask"] = torch.ones(b, s, dtype=torch.int64, device="meta")
    return found
