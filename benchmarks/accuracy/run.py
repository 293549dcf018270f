"""Estimates beside measured runs: `python benchmarks/accuracy/run.py` writes docs/accuracy.md. Needs torch.

`measured.json` has the runs, each with its source; nothing is fitted to them. A tier is compared only with itself.
"""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from preflight.job import build
from preflight.machines.gpus import find_gpu
from preflight.memory import device
from preflight.memory.estimate import DeviceEstimate

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "accuracy.md"
MIB = 2**20
TIERS = ("allocated", "reserved", "process")

INTRO = """# How accurate the device estimates are

Made by `python benchmarks/accuracy/run.py`; nothing is fitted to these runs. Each tier is compared with itself:
*allocated* and *reserved* are PyTorch's own counters, *process* is what nvidia-smi shows. MiB; the error is
estimate / measured - 1. "inside" says whether the measurement lies in the interval that preflight states.

Two things about the T4 rows were learnt from the rows themselves: that the script which made them keeps the logits
through backward (`train.outputs_kept = "step"`; without it allocated is short by exactly 2 b s V bytes), and that eager
attention was short by one score tensor, which led to the product that CUDA's softmax backward allocates (SoftMax.cu).
Both are mechanisms, not fits, but these rows are not held out. The optimizer of the ResNet rows is inferred by their
source.

What the rows do not cover: quantised weights (no law yet), several GPUs, torch.compile. The full comparison, with other
tools, is still to come.
"""

CONTEXT = """
## Context

The CUDA context and libraries are not PyTorch's to count. Their size by GPU is data, `preflight/machines/gpus.json`,
made from "memory in use" minus allocated minus reserved in public out-of-memory messages: 45 single-process ones lie
between 0.09 and 0.75 GiB, median 0.34. The convolutional rows above were measured with a training script whose context
and other uses of the GPU came to about 1.75 GiB; the figures above are preflight's own, without that knowledge, and the
difference between two batch sizes is what tests the law.
"""


def compare(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each tier that was measured."""
    found = device.estimate(build(row["job"]), find_gpu(row["gpu"]))
    if not isinstance(found, DeviceEstimate):
        return [{"id": row["id"], "tier": tier, "refused": found.reason} for tier in row["measured_mib"]]
    lines = []
    for tier, measured in row["measured_mib"].items():
        interval = getattr(found, tier)
        inside = interval.low <= measured * MIB <= interval.high
        lines.append({"id": row["id"], "tier": tier, "measured": measured, "estimate": interval.expected / MIB,
                      "error": interval.expected / MIB / measured - 1, "inside": inside})  # fmt: skip
    return lines


def summary(lines: list[dict[str, Any]], title: str) -> list[str]:
    """A table of error statistics by tier."""
    text = [f"\n## {title}\n", "| tier | rows | median error | 90 % within | worst under | worst over | inside |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for tier in TIERS:
        errors = sorted(line["error"] for line in lines if line["tier"] == tier and "error" in line)
        if errors:
            sizes = sorted(abs(e) for e in errors)
            inside = sum(line["inside"] for line in lines if line["tier"] == tier and "inside" in line)
            most = sizes[int(0.9 * (len(sizes) - 1))]
            text.append(
                f"| {tier} | {len(errors)} | {statistics.median(sizes):.1%} | {most:.1%} "
                f"| {min(0.0, errors[0]):.1%} | {max(0.0, errors[-1]):+.1%} | {inside} of {len(errors)} |"
            )
    return text


def every(lines: list[dict[str, Any]]) -> list[str]:
    """Every row."""
    text = ["\n| run | tier | measured | estimate | error |", "|---|---|---|---|---|"]
    for line in lines:
        head = f"| {line['id']} | {line['tier']} |"
        if "refused" in line:
            text.append(f"{head} | refused: {line['refused']} | |")
        else:
            text.append(f"{head} {line['measured']:,.0f} | {line['estimate']:,.0f} | {line['error']:+.1%} |")
    return text


def slopes(lines: list[dict[str, Any]]) -> list[str]:
    """Convolutional rows by what each further batch adds: the constant falls out."""
    text = ["\n## What a larger batch adds (convolutional models)\n"]
    text += ["| model | from | to | measured | estimate | error |", "|---|---|---|---|---|---|"]
    by_model: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for line in lines:
        model, _, batch = line["id"].rpartition("-b")
        if "error" in line:
            by_model.setdefault(model, []).append((int(batch), line))
    for model, found in by_model.items():
        for (first, a), (second, b) in pairwise(found):
            measured, estimate = b["measured"] - a["measured"], b["estimate"] - a["estimate"]
            text.append(
                f"| {model} | {first} | {second} | {measured:,.0f} | {estimate:,.0f} | {estimate / measured - 1:+.1%} |"
            )
    return text


def main() -> None:
    rows = json.loads((HERE / "measured.json").read_text(encoding="utf-8"))
    decoders = [line for row in rows if "peft" in json.dumps(row["job"]) for line in compare(row)]
    convolutional = [line for row in rows if "model.target" in row["job"] for line in compare(row)]
    sources = sorted({f"- {row['source']}" for row in rows})
    text = [INTRO, *summary(decoders, "LoRA on decoders, fp16, gradient checkpointing, Tesla T4"), *every(decoders),
            *summary(convolutional, "ResNets, fp32, SGD with momentum, A100 40GB"), *every(convolutional),
            *slopes(convolutional), CONTEXT, "\n## Sources\n", *sources]  # fmt: skip
    DOCS.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
