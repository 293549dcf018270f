"""`python -m benchmarks.accuracy.heldout`: preflight on measured runs of sources that it was not developed beside.

`public/*.json` has one file a source: what the source says of all its runs (`common`), its figures, and where each is
from. A row's quality: A, the program and the figure are exact; B, a setting is inferred from the program; C, a length
or a counter is vague. Only fields that a source states or its program fixes are in a Job.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.report import percent, table
from benchmarks.accuracy.score import Score, Summary, summary
from benchmarks.accuracy.tool import Preflight
from benchmarks.accuracy.truth import GIB, MIB, TIERS, Run, Tier
from preflight.engine.job_by_hand import completed

NAME = "public"
FOLDER = Path(__file__).parent / "public"
UNITS: Mapping[str, int] = {"byte": 1, "MB": 10**6, "GB": 10**9, "MiB": MIB, "GiB": GIB}
NOT_STATED: Tier = "reserved"
"""What a figure whose counter nobody names is compared with: the middle of the three that people read."""


class PublicRow(TypedDict, total=False):
    """One figure. `also`: other counters of the same run; `tier`, `unit`: where they are not the file's."""

    id: str
    measured: float
    quality: str
    why: str
    tier: str
    unit: str
    also: dict[Tier, float]
    job: dict[str, object]


class PublicFile(TypedDict):
    """One source."""

    source: str
    unit: str
    tier: str
    facts: list[str]
    common: dict[str, object]
    rows: list[PublicRow]


@dataclass(frozen=True)
class Held:
    """A run with what its file says of the counter."""

    run: Run
    stated: bool


def held(folder: Path = FOLDER) -> Iterator[Held]:
    """Every run of the files, in order of name."""
    for path in sorted(folder.glob("*.json")):
        data: PublicFile = json.loads(path.read_text(encoding="utf-8"))
        for row in data["rows"]:
            yield _held(path.stem, data, row)


def _held(kind: str, data: PublicFile, row: PublicRow) -> Held:
    unit = UNITS[row.get("unit", data["unit"])]
    tier = row.get("tier", data["tier"])
    stated = tier in TIERS
    figures: dict[Tier, float] = dict(row.get("also", {}))
    figures[next((name for name in TIERS if name == tier), NOT_STATED)] = row["measured"]
    measured = {name: round(value * unit) for name, value in figures.items()}
    fields = completed({**data["common"], **row["job"]})
    run = Run(f"{kind}/{row['id']}", NAME, kind, fields, measured, row["quality"], tier)
    return Held(run, stated)


def runs() -> list[Run]:
    """Those whose source names the counter."""
    return [each.run for each in held() if each.stated]


def lines(scores: Iterable[Score], stated: Mapping[str, bool]) -> list[tuple[str, ...]]:
    """One row of the table a figure."""
    found: list[tuple[str, ...]] = []
    for each in scores:
        tier = each.tier if stated[each.run.id] else f"({each.tier})"
        shown = f"{each.measured / GIB:.2f}"
        if each.estimate is None:
            found.append((each.run.id, each.run.quality, tier, shown, "-", "-", "-", each.why[:90]))
            continue
        inside = "yes" if each.inside else "no"
        found.append(
            (
                each.run.id,
                each.run.quality,
                tier,
                shown,
                f"{each.estimate / GIB:.2f}",
                percent(each.error, True),
                inside,
                "",
            )
        )
    return found


def group(name: str, found: Summary | None) -> tuple[str, ...]:
    """One row of the summary."""
    if found is None or not found.answered:
        return (name, "0", str(found.refused if found else 0), "-", "-", "-", "-", "-")
    inside = "-" if found.inside is None else percent(found.inside)
    return (
        name, str(found.answered), str(found.refused), percent(found.median), percent(found.p90),
        percent(found.worst_under, True), percent(found.worst_over, True), inside,
    )  # fmt: skip


def text(scores: Sequence[Score], stated: Mapping[str, bool]) -> str:
    """Both tables. A counter in brackets is not the source's word."""
    heads = ("figure", "quality", "counter", "GiB", "estimate", "error", "inside", "refused")
    parts = [*table(heads, lines(scores, stated))]
    heads = ("", "answered", "refused", "median", "p90", "worst under", "worst over", "inside")
    rows = [group(f"quality {q}", summary(s for s in scores if s.run.quality == q)) for q in "ABC"]
    rows += [group(kind, summary(s for s in scores if s.run.kind == kind)) for kind in _kinds(scores)]
    return "\n".join([*parts, *table(heads, rows)])


def _kinds(scores: Sequence[Score]) -> list[str]:
    return sorted({score.run.kind for score in scores})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.heldout", description=__doc__)
    parser.add_argument("--only", metavar="SOURCE", nargs="*", help="files of public/, without .json")
    parser.add_argument("--shipped", action="store_true", help="shipped laws only: models without one are refused")
    options = parser.parse_args(argv)
    chosen = [each for each in held() if not options.only or each.run.kind in options.only]
    found = measure([each.run for each in chosen], [], Preflight(tracing=not options.shipped))
    print(text(found.scores, {each.run.id: each.stated for each in chosen}))
    for crash in found.crashes:
        print(f"crash: {crash}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
