"""Why rows are far off: what is known of a row's source, said beside the worst rows. Mechanisms, no adjustments."""

from __future__ import annotations

import re

_REMARKS: tuple[tuple[str, str], ...] = (
    (r"litgpt-rt.*nf4", "a constant of about 150 MiB beside quantised weights, whatever the model"),
    (r"torchtune-llama3.2-3b-adam8", "which 8-bit AdamW was run is not said"),
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
    "vicunarlhf6-t4": "alpaca-lora's own settings, which others ran on such a GPU; the report has no figure",
}
"""What is known of reports that are judged wrongly."""


def remark(run_id: str) -> str:
    """What is known of a row; empty where nothing is."""
    return next((text for pattern, text in _REMARKS if re.match(pattern, run_id)), "")
