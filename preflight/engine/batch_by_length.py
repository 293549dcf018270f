"""What fits where the length or the batch is not known: the largest batch for each length, instead of a guess."""

from __future__ import annotations

from collections.abc import Callable

from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import LENGTHS, Estimates, Row
from preflight.vocabulary.job import Job

BATCHES = (1, 8, 32)


def frontier(job: Job, estimate: Callable[[Job], Estimates]) -> list[Row]:
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


def _rows(job: Job, field: str, estimate: Callable[[Job], Estimates]) -> list[Row]:
    """A row for each usual length of a field; nothing where the estimate does not hang on it."""
    rows: list[Row] = []
    for length in LENGTHS:
        row = _row(job, field, length, estimate)
        if row is None:
            break  # longer than the model has positions, or nothing is known of it
        rows.append(row)
    return rows if len({row.needs for row in rows}) > 1 or len(rows) == 1 else []


def _row(job: Job, field: str, length: int | None, estimate: Callable[[Job], Estimates]) -> Row | None:
    batches = BATCHES if job.train.batch_size is None else (job.train.batch_size,)
    needs, largest = [], None
    for batch in batches:
        device = estimate(with_fields(job, {field: length, "train.batch_size": batch})).device
        if device is None:
            return None
        needs.append((batch, device.process.expected))
        largest = device.largest_batch_size if largest is None else largest
    return Row(length, largest, tuple(needs))
