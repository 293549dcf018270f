"""timm's train.py on an A100 40GB, as GPUMemNet ran it (itu-rad/GPUMemNet, Related_works/FakeTensor/fake_tensor.xlsx).

The script's command line is not published. Its defaults (huggingface/pytorch-image-models, train.py): --opt sgd with
--momentum 0.9, no --amp, no --channels-last, --img-size the model's own, torch.backends.cudnn.benchmark = True, and
allow_tf32 since 0.6; label smoothing 0.1. A regression over 570 of these runs gives 2.65 bytes of states per byte of
weights, which is SGD with momentum.
"""

from __future__ import annotations

import re

from benchmarks.accuracy.truth import MIB, Fields, Row, Run, TimmRow

NAME = "timm"
_ATTENTION = re.compile(
    r"(vit|deit|beit|swin|cait|xcit|mixer|gmlp|resmlp|gmixer|eva|pit_|twins|volo|crossvit|tnt|jx_nest|nest_|flexivit|"
    r"sequencer|visformer|samvit|convit|mvit|hiera|vitamin|aimv2|naflex|nextvit|efficientformer|poolformer|caformer)"
)


def kind(model: str) -> str:
    """Convolutions bring workspaces of cuDNN's, which attention and plain matrix products do not."""
    hybrid = re.search(r"maxvit|coatnet|maxxvit|mobilevit|levit|coat_|edgenext|fastvit|tiny_vit|repvit", model)
    return "images, attention or MLP" if _ATTENTION.match(model) and not hybrid else "images, convolutions"


def recognises(row: Row) -> bool:
    return "GPUMemNet" in row["source"]


def fields(row: Row) -> Fields:
    return _fields(row["model"].removeprefix("timm "), row["batch_size"])


def run_of(row: TimmRow) -> Run:
    """A line of the whole table."""
    name, batch = row["model"], row["batch_size"]
    measured = {"process": round(row["process_mib"] * MIB)}
    return Run(
        f"timm-{name}-bs{batch}", NAME, kind(name), _fields(name, batch), {"process": measured["process"]}, "B",
        "nvidia-smi/dcgm max",
    )  # fmt: skip


def _fields(model: str, batch: int) -> Fields:
    return {
        "model.target": f"timm:{model}",
        "task": "image-classification",
        "train.batch_size": batch,
        "train.precision": "fp32",
        "train.tf32": True,
        "train.optimizer": "sgd-momentum",
        "train.cudnn_benchmark": True,
        "machine.gpu": "A100 40GB",
    }
