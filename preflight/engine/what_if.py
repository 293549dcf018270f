"""One job estimated with other settings: what fits at each length, what explains a measurement, what no batch reduces.

Where the length or the batch is not known, the largest batch for each length stands in the place of a guess.
"""

from __future__ import annotations

from collections.abc import Callable

from preflight.vocabulary.edits_of_job import possible, with_fields
from preflight.vocabulary.estimates import LENGTHS, Comparison, DeviceEstimate, Estimates, Explanation, FrontierRow
from preflight.vocabulary.job import Job

BATCHES = (1, 8, 32)


def frontier(job: Job, estimate: Callable[[Job], Estimates]) -> list[FrontierRow]:
    """A row for each length where a length or train.batch_size is what is missing; nothing where it is not."""
    train = job.train
    for field, value in (("train.seq_len", train.seq_len), ("train.target_len", train.target_len)):
        if value is None:
            rows = _rows(job, field, estimate)
            if rows:
                return rows
    if train.batch_size is None:  # the length is known, or the model has none: of images say
        row = _row(job, "train.seq_len", train.seq_len, estimate)
        return [row] if row is not None else []
    return []


def _rows(job: Job, field: str, estimate: Callable[[Job], Estimates]) -> list[FrontierRow]:
    """A row for each usual length of a field; empty if the estimate does not depend on it."""
    rows: list[FrontierRow] = []
    for length in LENGTHS:
        row = _row(job, field, length, estimate)
        if row is None:
            break  # longer than the model has positions, or nothing is known of it
        rows.append(row)
    needs = {tuple(found.process.expected for _, found in row.needs) for row in rows}
    return rows if len(needs) > 1 or len(rows) == 1 else []


def _row(job: Job, field: str, length: int | None, estimate: Callable[[Job], Estimates]) -> FrontierRow | None:
    batches = BATCHES if job.train.batch_size is None else (job.train.batch_size,)
    needs, largest = [], None
    for batch in batches:
        device = estimate(with_fields(job, {field: length, "train.batch_size": batch})).device
        if device is None:
            return None
        needs.append((batch, device))
        largest = device.largest_batch_size if largest is None else largest
    return FrontierRow(length, largest, tuple(needs))


# --- comparison of a measured figure with the estimate ---------------------------------------------------------------

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


# --- what a model keeps on the GPU from its first step on, whatever the batch ----------------------------------------

STATES = ("weights", "gradients", "optimizer")

SHORT = 16
"""Tokens whose activations are negligible compared with any model's states."""


def states(job: Job, device: DeviceEstimate, estimate: Callable[[Job], Estimates]) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer states when all three are there: what no smaller batch reduces.

    The peak of a large batch lies where gradients have only begun; that of the smallest one is the optimizer step.
    """
    found = [device.breakdown]
    if job.train.batch_size is not None and not device.lower_bound:
        smallest = possible(job, _smallest(job))
        least = estimate(smallest).device if smallest is not None else None
        found += [least.breakdown] if least is not None else []
    each = [{part: breakdown.get(part, 0) for part in STATES} for breakdown in found]
    for parts in each:  # a second copy, as tied weights have for a moment, is not kept
        parts["gradients"] = min(parts["gradients"], parts["weights"])
    return max(each, key=lambda parts: sum(parts.values()))


def _smallest(job: Job) -> dict[str, object]:
    """One short sample, never evaluated: nothing is at the peak but the states and what the optimizer step needs."""
    short = {"train.seq_len": min(job.train.seq_len, SHORT)} if job.train.seq_len is not None else {}
    silent = {"validation.batch_size": None, "validation.samples": None, "validation.accumulates_logits": False}
    alone = {"train.sequences": None}  # what batches of other lengths leave behind is no state
    return {"train.batch_size": 1, **short, **silent, **alone}
