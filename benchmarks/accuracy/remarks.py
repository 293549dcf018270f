"""Probable reasons of large errors, shown in the table of the worst rows. They change no figure."""

from __future__ import annotations

import re

_REMARKS: tuple[tuple[str, str], ...] = (
    (r"litgpt-rt.*nf4", "about 150 MiB in addition to quantised weights, for every model"),
    (r"torchtune-llama3.2-3b-adam8", "the source does not say which 8-bit AdamW was run"),
    (r"torchtune-.*8xa100",
     "compiled: Inductor keeps less than the model does that runs operator by operator"),
    (r"torchtune-", "torchtune's own model code: norms, rotary embeddings and loss are not transformers'"),
    (r"swift-.*s(2048|4096|8192)|swift-qwen7b",
     "lengths differ from sample to sample, and the allocator keeps what each length left (reserved)"),
    (r"swift-", "samples of every length up to the bound; the remote code's rotary and attention are the model's own"),
    (r"detectron2-|mmdet-", "the largest pair of sides that an epoch drew"),
    (r"timm-.*vgg", "cuDNN's workspaces for 3 x 3 convolutions of whole images"),
    (r"timm-.*(resnet|resnext|regnet|vgg|efficientnet|mobilenet|convnext|inception)",
     "cuDNN's workspaces and the context of a script that is not published"),
    (r"timm-", "the context and the settings of a script that is not published"),
    (r"fitcheck-.*eager", "which cached block serves the score tensors depends on the order of frees"),
)  # fmt: skip


REPORTS = {
    "vicunarlhf6-t4": "alpaca-lora's own settings, which other users ran on such a GPU; the report has no figure",
}
"""Probable reasons of wrong verdicts on reports."""


def remark(run_id: str) -> str:
    """The probable reason of a row's error; empty if none is known."""
    return next((text for pattern, text in _REMARKS if re.match(pattern, run_id)), "")
