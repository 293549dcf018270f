"""A batch that is odd."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Finding, Rule, Severity


class BatchIsOdd(Rule):
    """The batch size is odd.

    It stands for a rule of a house: nothing is wrong with an odd batch.
    """

    name = "batch-is-odd"
    summary = "The batch size is odd"

    def check(self, case: Case) -> Iterator[Finding]:
        batch = case.job.train.batch_size
        if batch is not None and batch % 2:
            yield self.finding(f"batch {batch} is odd", case.origin("train.batch_size"), Severity.warning)
