"""A measured figure beside the estimate: does it agree, and which single setting would explain it if not."""

from __future__ import annotations

from collections.abc import Callable

from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import Comparison, DeviceEstimate, Estimates, Explanation
from preflight.vocabulary.job import Job

VARIANTS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("train.gradient_checkpointing", (True, False)),
    ("train.attention", ("eager", "sdpa", "flash")),
    ("train.precision", ("fp32", "bf16-mixed", "fp16-mixed", "bf16")),
    ("train.optimizer", ("adamw", "sgd", "adafactor", "adamw-8bit")),
    ("train.optimizer_impl", ("foreach", "fused", "for-loop")),
    ("train.grad_accum", (1, 2)),
    ("train.outputs_kept", ("no", "step", "loop")),
    ("train.copies.ema", (0, 1)),
    ("validation.accumulates_logits", (True, False)),
)
"""Settings that a file may not show and that move memory by more than an interval."""


CLOSE = 0.05
"""An explanation has to come this near; the interval of most estimates is about as wide."""


def compare(measured: int, job: Job, device: DeviceEstimate, estimate: Callable[[Job], Estimates]) -> Comparison:
    """The comparison; other settings are tried only where the figure lies outside the interval."""
    process = device.process
    difference = measured - process.expected
    if process.low <= measured <= process.high:
        return Comparison(measured, difference, True, ())
    found = []
    for field, values in VARIANTS:
        for value in values:
            changed = possible(job, {field: value}) if job.get(field) != value else None
            other = estimate(changed).device if changed is not None else None
            if other is not None and abs(other.process.expected - measured) <= CLOSE * measured:
                found.append(_explanation(field, value, device, other))
    found.sort(key=lambda one: abs(one.expected - measured))
    return Comparison(measured, difference, False, tuple(found))


def _explanation(field: str, value: object, device: DeviceEstimate, other: DeviceEstimate) -> Explanation:
    moved = {
        name: other.breakdown.get(name, 0) - device.breakdown.get(name, 0)
        for name in {*device.breakdown, *other.breakdown}
    }
    part = max(moved, key=lambda name: abs(moved[name]))
    return Explanation(field, value, other.process.expected, part, moved[part])
