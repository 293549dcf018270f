"""`python -m benchmarks.accuracy.reports`: verdicts on public reports that preflight was not developed beside.

`public/reports.jsonl` has a run a line: whether it died or worked, where that is said, and the Job that the report and
the script it names fix. All lines were written before preflight was run on any of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from benchmarks.accuracy.fits import DIED_JUDGED_FITS, WORKED_JUDGED_EXCEEDS, Confusion, Judged, confusion, judge
from benchmarks.accuracy.incidents import Incident
from benchmarks.accuracy.peers.base import Refused
from benchmarks.accuracy.report import percent, table
from benchmarks.accuracy.tool import Preflight, job_of
from benchmarks.accuracy.truth import GIB, Inexpressible
from preflight.engine.job_by_hand import completed
from preflight.vocabulary.estimates import DeviceEstimate

FILE = Path(__file__).parent / "public" / "reports.jsonl"


class MessageNumbers(TypedDict, total=False):
    """What the message of the error says."""

    tried_mib: float
    allocated_gib: float
    reserved_gib: float


class ReportRow(TypedDict, total=False):
    """A line of the file. `phase`: where it died, as far as the source says."""

    id: str
    source: str
    date: str
    outcome: Literal["oom", "ok"]
    why: str
    job: dict[str, object]
    capacity_gib: float
    message: MessageNumbers
    phase: str


@dataclass(frozen=True)
class Verdict:
    """A report with preflight's answer and, where the verdict is wrong, the estimate that it rests on."""

    row: ReportRow
    judged: Judged
    estimate: DeviceEstimate | None = None

    @property
    def wrong(self) -> bool:
        return self.judged.verdict == ("fits" if self.judged.incident.died else "exceeds")


def rows(path: Path = FILE) -> Iterator[ReportRow]:
    """Every report of the file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def incident_of(row: ReportRow) -> Incident:
    """A row as the means of fits.py take it: reports of one source share a vote."""
    return Incident(row["id"], row["source"], row["outcome"] == "oom", completed(row["job"]), False)


def verdicts(found: Sequence[ReportRow], tool: Preflight) -> list[Verdict]:
    """preflight's verdict on each report."""
    all_of = [Verdict(row, judged) for row, judged in zip(found, judge(map(incident_of, found), tool), strict=True)]
    return [Verdict(one.row, one.judged, _estimate(one.judged.incident, tool)) if one.wrong else one for one in all_of]


def _estimate(incident: Incident, tool: Preflight) -> DeviceEstimate | None:
    if isinstance(incident.fields, Inexpressible):
        return None
    found = tool.device(job_of(incident.fields))
    return None if isinstance(found, Refused) else found


def text(found: Sequence[Verdict]) -> str:
    """The confusion table, what was judged wrongly, and why verdicts are unknown."""
    judged = [one.judged for one in found]
    wrong = [one for one in found if one.wrong]
    unknown = [one for one in found if one.judged.verdict == "unknown"]
    parts = list(_confusion(confusion(judged), judged))
    parts += table(
        ("judged wrongly", "outcome", "verdict", "need, GiB", "phase", "card", "died with", "why it is so described"),
        [_wrong(one) for one in wrong],
    )
    parts += table(
        ("unknown", "outcome", "reason"),
        [(one.row["id"], one.row["outcome"], one.judged.why.split("\n")[0]) for one in unknown],
    )
    return "\n".join(parts)


def _confusion(found: Confusion, judged: Sequence[Judged]) -> Iterator[str]:
    sources = len({one.incident.group for one in judged})
    yield f"{len(judged)} reports of {sources} sources; each source has one vote.\n"
    names = (("died", found.died), ("worked", found.worked))
    yield from table(("outcome", *found.died), [(name, *(f"{votes[v]:.1f}" for v in votes)) for name, votes in names])
    yield (
        f'Of the votes with a verdict: died, judged "fits": {percent(found.died_judged_fits)} '
        f'(target {DIED_JUDGED_FITS:.0%}); worked, judged "exceeds": {percent(found.worked_judged_exceeds)} '
        f"(target {WORKED_JUDGED_EXCEEDS:.0%}).\n"
    )


def _wrong(one: Verdict) -> tuple[str, ...]:
    need, phase, card = "-", "-", "-"
    if one.estimate is not None:
        tier = one.estimate.process
        need = " / ".join(f"{value / GIB:.1f}" for value in (tier.low, tier.expected, tier.high))
        phase = f"{one.estimate.phase} {one.estimate.where}".strip()
        card = "-" if one.estimate.capacity is None else f"{one.estimate.capacity / GIB:.2f}"
    return (
        one.row["id"], one.row["outcome"], one.judged.verdict, need, phase, card, _message(one.row), one.row["why"],
    )  # fmt: skip


def _message(row: ReportRow) -> str:
    numbers: Mapping[str, object] = row.get("message", {})
    said = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in numbers.items())
    return "; ".join(filter(None, (said, row.get("phase", "")))) or "-"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.reports", description=__doc__)
    parser.add_argument("--only", metavar="ID", nargs="*", help="reports by their ids")
    parser.add_argument("--shipped", action="store_true", help="shipped laws only: models without one are unknown")
    parser.add_argument("--all", action="store_true", help="every verdict, one a line, before the tables")
    options = parser.parse_args(argv)
    chosen = [row for row in rows() if not options.only or row["id"] in options.only]
    tool = Preflight(tracing=not options.shipped)
    found = verdicts(chosen, tool)
    if options.all:
        print("\n".join(f"{one.row['id']}: {one.row['outcome']} {one.judged.verdict}" for one in found))
    print(text(found))
    for crash in tool.crashes:
        print(f"crash: {crash}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
