"""docs/accuracy.md: the text around the tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.accuracy import report
from benchmarks.accuracy.fits import Judged, confusion
from benchmarks.accuracy.measure import Measured
from benchmarks.accuracy.orders import HEADS
from benchmarks.accuracy.peers import Peer
from benchmarks.accuracy.tool import NAME
from benchmarks.accuracy.truth import Run

INTRO = """# How accurate the device estimates are

Made by `python -m benchmarks.accuracy`, which runs preflight and other tools on public measured runs. Each run is
described as a Job from its source's own code (`benchmarks/accuracy/sources/`, with the file of each fact); what the
source does not say stays unknown, and then preflight may refuse. The error is estimate / measured - 1.

Tiers are compared only with themselves: *allocated* (and torchtune's *active*) and *reserved* are PyTorch's counters,
*process* is what nvidia-smi shows, or reserved plus the context that the source measured. A tool that gives one figure
and names no tier is compared with that figure in each. A tool refuses where it has no option for what was run.
"""

NOT_HELD_OUT = """
These rows are what preflight was developed beside: mechanisms were learnt from them (that fitcheck's script keeps the
logits through backward, that CUDA's softmax backward allocates a product of its own), and none was fitted to them. They
are not held out. fitcheck's constants are fitted to the fitcheck rows of this table: on those it is at home.
"""

CONTEXT = """## Context

The CUDA context and libraries are not PyTorch's to count. Their size by GPU is data, `preflight/machines/gpus.json`,
made from "memory in use" minus allocated minus reserved in public out-of-memory messages: 45 single-process ones lie
between 0.09 and 0.75 GiB, median 0.34. The timm runs were measured with a script whose context and other uses of the
GPU came to 1.8 to 1.9 GiB (the intercept over batch sizes of 570 runs); the figures here are preflight's own, without
that knowledge.
"""

INTERVALS = """## Do the intervals hold?

An interval promises to hold 90 % of measured runs. The last column says what 90 % of the votes ask for where each
source has one vote; the column before it, what share of a source's rows an interval holds that was made of the other
sources alone (-: there is no other).
"""

SOURCES = """## Sources

- github.com/Anassbzdd/fitcheck (fitcheck-llm 0.3.1), data/measurements and scripts/measure.py: Tesla T4
- github.com/Lightning-AI/litgpt, tutorials/resource-tables.md (8641822: A100 40GB) and config_hub/finetune (A10G)
- github.com/modelscope/ms-swift, docs/source_en/LLM/Benchmark.md and scripts/benchmark/test_memory_time: A100 80GB
- github.com/pytorch/torchtune (bd2a0fc), README.md and docs/source/tutorials
- github.com/facebookresearch/detectron2, MODEL_ZOO.md; github.com/open-mmlab/mmdetection, metafiles of its configs
- github.com/itu-rad/GPUMemNet, fake_tensor.xlsx: timm's train.py on an A100 40GB
- reports of runs that died or worked: issues and documents, each named in the file of incidents
"""


ORDERS = """## Lengths in another order

Where every batch has a length of its own, reserved memory hangs on the order in which the lengths come: a batch longer
than all before it finds no cached block that is large enough. Five jobs of ms-swift's table, each replayed with eight
draws of a hundred lengths like its data set's (`python -m benchmarks.accuracy.orders`):
"""


def text(runs: Sequence[Run], peers: Sequence[Peer], found: Measured, judged: Sequence[Judged],
         orders: Sequence[tuple[str, str, str]] = ()) -> str:  # fmt: skip
    """The whole document."""
    tools = [NAME, *(peer.name for peer in peers if peer.version is not None)]
    lines = [INTRO, NOT_HELD_OUT, *_tools(peers, found)]
    lines += [
        "## Summary\n",
        *report.overview(found.scores),
        "## By tier and family\n",
        *report.tiers(found.scores, tools),
    ]
    if len(tools) > 1:
        lines += ["## Beside other tools\n", *report.comparison(found.scores)]
    if judged:
        lines += ["## Fitted or died\n", *report.fitted(judged, confusion(judged))]
    lines += [*_own_gpu(runs, found), "## The worst rows\n", *report.worst(found.scores, _phases(found))]
    lines += [INTERVALS, *report.intervals(found.scores)]
    if orders:
        lines += [ORDERS, *report.table(HEADS, orders)]
    lines += ["## What preflight refuses\n", *report.refusals(found.scores)]
    lines += ["## Not scored\n", "Nobody states which figure these are, or they were cut off by the GPU's size.\n"]
    lines += [*report.unscored(runs), CONTEXT, SOURCES]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def _tools(peers: Sequence[Peer], found: Measured) -> list[str]:
    rows = [(peer.name, peer.version or "not run: not installed") for peer in peers]
    lines = report.table(("tool", "version"), rows)
    if found.crashes:
        lines += [f"preflight crashed on {len(found.crashes)} runs: {'; '.join(sorted(set(found.crashes)))}\n"]
    return lines


def _own_gpu(runs: Sequence[Run], found: Measured) -> list[str]:
    """Every measured run worked on its own GPU: a verdict "exceeds" is wrong there."""
    verdicts = {run.id: found.estimates[run.id].verdict for run in runs if run.id in found.estimates}
    known = [verdict for verdict in verdicts.values() if verdict != "unknown"]
    if not known:
        return []
    wrong = sorted(run for run, verdict in verdicts.items() if verdict == "exceeds")
    share = f"{len(wrong)} of {len(known)} measured runs, all of which worked, are judged to exceed their own GPU"
    return [f"{share}{': ' if wrong else '.'}{', '.join(wrong)}\n"]


def _phases(found: Measured) -> dict[str, str]:
    return {run: estimate.phase for run, estimate in found.estimates.items()}
