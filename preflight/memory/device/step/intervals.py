"""Intervals of an estimate: how far each tier may lie below and above the expected bytes, as fractions.

With these widths nine in ten of the measured runs of docs/results/accuracy.md with a completely stated setup are inside
(`python -m benchmarks.accuracy`, "calibration", which also shows them with each source left out). Jobs that are harder
to estimate have wider intervals. Over all rows of the table fewer are inside (allocated: 60 to 75 %), because the
source of some runs does things that no Job field states.
"""

from __future__ import annotations

from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.job import Job

# (below, above) as fractions of the expected bytes.
REQUESTED = (0.01, 0.01)
ALLOCATED = (0.03, 0.045)
RESERVED = (0.04, 0.07)
"""Which cached block serves a request depends on details of timing that no tape has."""
ROUNDED = 0.04
"""Reserved minus requested, usually: blocks of 512 bytes, segments of 2 MiB, and cached blocks at the peak."""
SHARDED = (0.10, 0.15)
COMPILED = (0.30, 0.10)
"""Inductor recomputes and fuses: it mostly saves, and sometimes adds (max-autotune workspaces)."""
FUSED = (0.05, 0.05)
"""The same where its graphs were traced: the order of kernels, and which buffers are written over, stay unknown. Of
torchtune's eleven compiled runs on one GPU (docs/results/accuracy.md) ten lie between -0.7 and +6.5 % of the figure."""
CONVOLUTION = (0.02, 0.03)
"""Which algorithms cuDNN has chosen. With RESERVED it holds 19 of 20 of 420 public runs of 92 image models in fp32;
outside are gigabytes that benchmarking tries at a few small batches, for no reason that is known."""
UNMEASURED = (0.06, 0.15)
"""The same where no such runs are known: 16 bits, channels last."""


def widen(job: Job, convolutional: bool, sharded: bool, fused: bool = False) -> tuple[float, float]:
    """How much wider a tier's interval is, by the properties that make a job hard to estimate.
    `fused`: the compiled step has a law."""
    below = above = 0.0
    for hard, (less, more) in (
        (sharded, SHARDED),
        (bool(job.train.compile), FUSED if fused else COMPILED),
        (convolutional, CONVOLUTION if _is_measured(job) else UNMEASURED),
    ):
        if hard:
            below, above = below + less, above + more
    return below, above


def _is_measured(job: Job) -> bool:
    return job.train.precision == "fp32" and not job.train.channels_last


def interval(expected: int, base: tuple[float, float], extra: tuple[float, float]) -> Interval:
    """An interval around a figure."""
    return Interval(round(expected * (1 - base[0] - extra[0])), expected, round(expected * (1 + base[1] + extra[1])))
