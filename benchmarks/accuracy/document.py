"""docs/results/accuracy.md: the text around the tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.accuracy import report
from benchmarks.accuracy.fits import Judged, confusion
from benchmarks.accuracy.measure import Measured
from benchmarks.accuracy.orders import shown
from benchmarks.accuracy.peers import Peer
from benchmarks.accuracy.tool import NAME
from benchmarks.accuracy.truth import Run

INTRO = """# How accurate the device estimates are

This page compares the estimates of preflight and of other tools with public measured runs.
`python -m benchmarks.accuracy` writes it. Each run is described as a Job from its source's own code
(`benchmarks/accuracy/sources/`, with the file of each fact). Values that the source does not state are unknown, and
preflight may then refuse. The error is estimate / measured - 1.

A figure is compared only with a figure of the same tier: *allocated* (and torchtune's *active*) and *reserved* are
PyTorch's counters, *process* is the value of nvidia-smi, or reserved plus the context that the source measured. If a
tool gives one figure without a tier, this figure is compared in every tier. A tool refuses a run if it has no option
for it.
"""

NOT_HELD_OUT = """
preflight was developed with these rows, so they are not held out: we learned from them, for example, that fitcheck's
script keeps the logits through backward, and that CUDA's softmax backward allocates an additional product. No constant
was fitted to them. The constants of fitcheck are fitted to the fitcheck rows of this table. For runs that preflight was
not developed with, see [held-out runs](held-out.md).
"""

CONTEXT = """## Context

PyTorch does not count the CUDA context and the libraries. Their size by GPU is in `preflight/machines/gpus.json`. It is
"memory in use" minus allocated minus reserved in public out-of-memory messages: 45 messages with a single process have
values between 0.09 and 0.75 GiB, median 0.34. The timm runs were measured with a script whose context and other uses of
the GPU were 1.8 to 1.9 GiB (the intercept over batch sizes of 570 runs). The figures here are preflight's own and do
not use this value.
"""

INTERVALS = """## Do the intervals hold?

90 % of measured runs should lie inside the interval. The last column is the interval that contains 90 % of the runs if
each source has one vote. The column before it is the share of a source's rows inside an interval that was made from the
other sources (-: there is no other source).
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

If batches differ in length, reserved memory depends on the order of the lengths: a batch that is longer than all before
it finds no cached block that is large enough. The table has five jobs of ms-swift's table, each replayed with eight
random draws of a hundred lengths like those of its data set (`python -m benchmarks.accuracy.orders`):
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
        lines += ["## Compared with other tools\n", *report.comparison(found.scores)]
    if judged:
        lines += ["## Fitted or died\n", *report.fitted(judged, confusion(judged))]
    lines += [*_own_gpu(runs, found), "## The worst rows\n", *report.worst(found.scores, _phases(found))]
    lines += [INTERVALS, *report.intervals(found.scores)]
    if orders:
        lines += [ORDERS, *shown(orders)]
    lines += ["## What preflight refuses\n", *report.refusals(found.scores)]
    lines += [
        "## Not scored\n",
        "The source does not state the tier of the figure, or the GPU's size limited it.\n",
    ]
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
