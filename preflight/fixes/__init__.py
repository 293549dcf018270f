"""Fixes: proposals planned as edits, proved on a copy in memory, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from preflight.fixes.proof import Prover

if TYPE_CHECKING:
    from preflight.fixes.proof import Again, Read
    from preflight.vocabulary.findings import Finding

__all__ = ["prove"]


def prove(findings: Iterable[Finding], found: Read, again: Again) -> Iterator[Finding]:
    """The findings in their order, each with the first of its proposals that is proved as its fix.

    `found` is what a check of the files found; `again` checks another state of the project in the same way.
    """
    prover = Prover(found, again)
    for finding in findings:
        yield prover.fixed(finding)
