"""timm's train.py on an A100 40GB, as GPUMemNet ran it (itu-rad/GPUMemNet, Related_works/FakeTensor/fake_tensor.xlsx).

The script's command line is not published. Its defaults (huggingface/pytorch-image-models, train.py): --opt sgd with
--momentum 0.9, no --amp, no --channels-last, --img-size the model's own, torch.backends.cudnn.benchmark = True, and
allow_tf32 since 0.6; label smoothing 0.1. A regression over 570 of these runs gives 2.65 bytes of states per byte of
weights, which is SGD with momentum. The table's models are those of timm 1.0.9.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.accuracy.truth import MIB, Fields, Inexpressible, Row, Run, TimmRow

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


FULL_MIB = 39_500
"""What an A100 40GB can give: 231 of the 5,085 figures lie above, and are of runs that met its end."""


def died(figures: Mapping[int, float], fake: Mapping[int, float] | None = None) -> set[int]:
    """Batch sizes of one model whose run did not train, by the figures (MiB) of all its batch sizes.

    Either the figure is all that the GPU has; or it is less than the live tensors that the source itself counted
    (`fake`, by batch size); or another batch has the very same one, where a step grows with its batch; or it is less
    than that of a smaller batch which took more than half of the GPU, or less than half of any smaller batch's: the run
    ended before its first step.
    """
    counted = fake or {}
    often = Counter(figures.values())
    found = {b for b, size in figures.items() if size >= FULL_MIB or size < counted.get(b, 0) or often[size] > 1}
    for batch, size in figures.items():
        below = max((other for b, other in figures.items() if b < batch), default=0.0)
        if size < below and (2 * below > FULL_MIB or 2 * size < below):
            found.add(batch)
    return found


def without_the_dead(runs: Sequence[Run], table: Sequence[TimmRow]) -> list[Run]:
    """The runs, those that did not train without a figure."""
    figures: dict[str, dict[int, float]] = {}
    fake: dict[str, dict[int, float]] = {}
    for row in table:
        figures.setdefault(f"timm:{row['model']}", {})[row["batch_size"]] = row["process_mib"]
        fake.setdefault(f"timm:{row['model']}", {})[row["batch_size"]] = row["fake_mib"]
    dead = {(target, batch) for target, sizes in figures.items() for batch in died(sizes, fake[target])}
    return [replace(run, measured={}, stated=DEAD) if _which(run) in dead else run for run in runs]


DEAD = "the run did not train"


def _which(run: Run) -> tuple[object, object]:
    if isinstance(run.fields, Inexpressible):
        return None, None
    return run.fields.get("model.target"), run.fields.get("train.batch_size")


THEN_224 = ("ese_vovnet57b", "mobilenetv3_large_150d", "sam2_hiera_tiny")
"""Models whose first weights came after timm 1.0.9, with images larger than the 224 pixels that stood there before."""


def _fields(model: str, batch: int) -> Fields:
    return {
        **({"train.image_size": 224} if model in THEN_224 else {}),
        "model.target": f"timm:{model}",
        "task": "image-classification",
        "train.batch_size": batch,
        "train.precision": "fp32",
        "train.tf32": True,
        "train.optimizer": "sgd-momentum",
        "train.cudnn_benchmark": True,
        "machine.gpu": "A100 40GB",
    }
