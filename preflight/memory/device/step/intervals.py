"""Intervals of an estimate: how far each tier may lie below and above the expected bytes.

Widths of properties that make a job hard to estimate add up (`widen`). How wide the sum has to be follows from measured
runs that nobody developed with (`calibration.json`, which `python -m benchmarks.accuracy.intervals` writes): for each
kind of job, how often the sum on each side would hold nine in ten of them. Each source of runs has one vote.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from preflight.memory.device.law.workload import Resolved
from preflight.vocabulary.estimates import Coverage, Interval
from preflight.vocabulary.job import Job

# (below, above) as fractions of the expected bytes.
REQUESTED = (0.01, 0.01)
ALLOCATED = (0.03, 0.045)
RESERVED = (0.04, 0.07)
"""Which cached block serves a request depends on details of timing that no tape has."""
ROUNDED = 0.04
"""Reserved minus requested, usually: blocks of 512 bytes, segments of 2 MiB, and cached blocks at the peak."""
BLOCKS, BLOCKS_BESIDE = 1.7, 2.5
"""By how much the blocks of the caching allocator can be larger than a bound that counts ROUNDED for them: of a job
that only trains, and of one that validates or generates as well. Jobs whose few largest tensors are most of their
memory keep freed blocks that no other tensor fits into: written-out attention at batch 1 and length 4,096, or
validation with whole logits after small batches. The largest of 72 measured runs with shipped laws has 1.36, of 1,148
generated jobs that only train 1.46, of 650 others 2.03."""
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


def blocks(job: Job) -> float:
    """BLOCKS of a job."""
    beside = job.validation.batch_size is not None or job.validation.generates
    return BLOCKS_BESIDE if beside else BLOCKS


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


# --- calibration: the widths times a factor on each side, by tier and kind of job -------------------------------------

Tier = Literal["allocated", "reserved", "process"]
TABLE = Path(__file__).with_name("calibration.json")
SCHEMA = 1


class Kind(TypedDict):
    """One kind of job in one tier. `below`, `above`: the factors; `rows`, `sources`: the measured runs behind them;
    `inside`: the share of these that are inside with each source left out in turn; `of`: the kinds that were used."""

    below: float
    above: float
    rows: int
    sources: int
    inside: float
    of: list[str]


class Calibration(TypedDict):
    """The file: for each tier, each kind."""

    schema: int
    covered: float
    tiers: dict[Tier, dict[str, Kind]]


class Factors(NamedTuple):
    """How much wider an interval is than its widths' sum."""

    below: float = 1.0
    above: float = 1.0


def kind_of(job: Job, resolved: Resolved, sharded: bool, varying: bool) -> str:
    """What makes a job hard to estimate, the hardest alone, and whether a version of a library is stated."""
    if sharded:
        hard = "sharded"
    elif resolved.workload.convolutional:
        hard = "convolutions"
    elif resolved.like is not None or resolved.workload.wider != (0.0, 0.0):
        hard = "stand-in"
    else:
        hard = "lengths vary" if varying else "steady"
    return f"{hard}, versions {'stated' if job.software else 'not stated'}"


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """The table of factors."""
    found: Calibration = json.loads(TABLE.read_text(encoding="utf-8"))
    if found["schema"] != SCHEMA:
        raise ValueError(f"{TABLE.name} has schema {found['schema']}, not {SCHEMA}")
    return found


def factors(tier: Tier, kind: str) -> Factors:
    """Those of a kind of job; 1 where no measured run says more."""
    found = calibration()["tiers"][tier].get(kind)
    return Factors() if found is None else Factors(found["below"], found["above"])


def coverage(tier: Tier, kind: str) -> Coverage | None:
    """The measured runs behind an interval."""
    found = calibration()["tiers"][tier].get(kind)
    return None if found is None else Coverage(kind, found["rows"], found["sources"], found["inside"])


def stretched(raw: Interval, by: Factors) -> Interval:
    """An interval whose sides are so many times as wide."""
    low = raw.expected - by.below * (raw.expected - raw.low)
    return Interval(max(0, round(low)), raw.expected, round(raw.expected + by.above * (raw.high - raw.expected)))


def with_effects(steady: Interval, found: Interval, by: Factors) -> Interval:
    """The stretched interval of a job whose effects changed it from `steady`. What they add on top (cached blocks of
    other lengths, kernels that are tried) is the most that there can be, and reaches no further."""
    return Interval(stretched(found, by).low, found.expected, max(found.high, stretched(steady, by).high))
