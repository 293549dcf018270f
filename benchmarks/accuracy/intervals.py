"""`python -m benchmarks.accuracy.intervals`: how wide intervals have to be, from held-out runs.

Split conformal prediction: the score of a measured run is how many times the sum of widths (`step/intervals.py`) an
interval's side would have to be as wide to hold it. A kind of job takes the scores that nine in ten runs do not pass,
a twentieth on each side. Each source of runs has one vote: its runs share a machine, a script and its mistakes. Only
runs count that no mechanism was learnt from, whose counter is stated, and whose settings are exact or inferred
(qualities A and B of `public/`). A kind with few runs takes the wider of its neighbours.

The command measures (models without a shipped law are traced), and writes `data/residuals.jsonl`, the engine's
`calibration.json` and docs/results/intervals.md. With `--kept` the scores of the file are taken as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import get_args
from unittest.mock import patch

from benchmarks.accuracy import heldout
from benchmarks.accuracy.__main__ import arguments, load
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.report import percent, table
from benchmarks.accuracy.score import Score
from benchmarks.accuracy.tool import Preflight, job_of
from benchmarks.accuracy.truth import Inexpressible
from preflight.machines.gpus import find_gpu
from preflight.memory.device.estimate import kind_of
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import intervals
from preflight.memory.device.step.intervals import Calibration, Factors, Kind, Tier
from preflight.vocabulary.values import Unknown

FILE = Path(__file__).parent / "data" / "residuals.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "results" / "intervals.md"
COVERED = 0.90
HARD = ("steady", "lengths vary", "stand-in", "convolutions", "sharded")
VERSIONS = ("stated", "not stated")
TIERS: tuple[Tier, ...] = get_args(Tier)
ENOUGH, SOURCES = 8, 3
"""Runs, and their sources, from which a kind has a width of its own."""
LEAST = Factors(0.5, 1.0)
"""The smallest factors: less would follow from few runs that happen to agree. The high end, which "fits" rests on, is
never nearer than the sum of widths."""
LEARNT = re.compile("torchtitan/|transformers_docs/|mmaction2/.*(flow|timesformer)")
"""Rows that preflight was extended after (docs/results/held-out.md)."""
IMAGES = "timm"
"""The source beside the held-out ones: widths were taken from it, no mechanism was."""
INTRO = """# Intervals

Nine in ten measured runs should lie inside an interval. This page shows how often they do, and on how many runs that
rests. `python -m benchmarks.accuracy.intervals` writes it.

The widths come from [held-out runs](held-out.md) by split conformal prediction. Only runs count that no mechanism was
learnt from, whose counter the source names, and whose settings are exact or inferred; and those of timm's table of
[the other results](accuracy.md). Each source has one vote.
*Inside*
is the share of runs that lie inside an interval whose width was made without their source. A kind of job with fewer
than 8 runs or 3 sources takes the wider of its neighbours, which the last column names: jobs that are as hard, with any
versions and in any tier, and if these are too few, steady and all jobs. *Below* and *above* are times the sum of widths
that [the estimate](../explanation/belief.md) adds up.
"""


@dataclass(frozen=True)
class Residual:
    """One measured figure. `at`: its distance from the expected bytes, in widths of that side of the interval."""

    id: str
    source: str
    kind: str
    tier: Tier
    at: float


def kinds() -> list[str]:
    """Every kind of job."""
    return [f"{hard}, versions {version}" for hard, version in product(HARD, VERSIONS)]


def residual(score: Score) -> Residual | None:
    """A figure's score; None for one that is no witness."""
    found, fields = score.interval, score.run.fields
    if found is None or isinstance(fields, Inexpressible) or score.tier == "requested":
        return None
    job = job_of(fields)
    ready = prepare(job, find_gpu(job.machine.gpu) if job.machine.gpu else None)
    side = found.high - found.expected if score.measured > found.expected else found.expected - found.low
    if isinstance(ready, Unknown) or side <= 0:
        return None
    at = round((score.measured - found.expected) / side, 4)
    source = score.run.kind if score.run.source == heldout.NAME else score.run.source
    return Residual(score.run.id, source, kind_of(ready), score.tier, at)


def measured() -> list[Residual]:
    """The scores of all runs that count, with widths as they are before they are stretched."""
    chosen = [each.run for each in heldout.held() if each.stated and each.run.quality in ("A", "B")]
    chosen = [run for run in chosen if not LEARNT.match(run.id)]
    chosen += load(arguments(["--only", IMAGES]))
    with patch.object(intervals, "factors", lambda *_: Factors()):
        found = measure(chosen, [], Preflight())
    return [one for one in map(residual, found.scores) if one is not None]


def read(path: Path = FILE) -> list[Residual]:
    """The scores of the file."""
    return [Residual(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


# --- the table --------------------------------------------------------------------------------------------------------


def _enough(rows: Sequence[Residual]) -> bool:
    return len(rows) >= ENOUGH and len({one.source for one in rows}) >= SOURCES


def _at(votes: Sequence[tuple[float, float]], share: float) -> float:
    """The value that `share` of the votes do not pass."""
    total, passed = sum(weight for _, weight in votes), 0.0
    for value, weight in sorted(votes):
        passed += weight
        if passed >= share * total - 1e-9:
            return value
    return 0.0


def factors(rows: Sequence[Residual]) -> Factors:
    """Those that hold COVERED of the votes."""
    sizes: dict[str, int] = {}
    for one in rows:
        sizes[one.source] = sizes.get(one.source, 0) + 1
    tail = (1 - COVERED) / 2
    above = _at([(one.at, 1 / sizes[one.source]) for one in rows], 1 - tail)
    below = _at([(-one.at, 1 / sizes[one.source]) for one in rows], 1 - tail)
    return Factors(round(max(LEAST.below, below), 2), round(max(LEAST.above, above), 2))


def neighbours(tier: Tier, kind: str, rows: Sequence[Residual]) -> dict[str, list[Residual]]:
    """The groups whose scores a kind takes in a tier: its own if it has enough, else those that are as hard, with any
    versions and in any tier; if these are too few, steady and all jobs as well. The wider one decides."""
    hard = kind.partition(",")[0]
    own = [one for one in rows if one.tier == tier and one.kind == kind]
    if _enough(own):
        return {kind: own}
    alike = {
        f"{hard}, this tier": [one for one in rows if one.tier == tier and one.kind.startswith(f"{hard},")],
        f"{hard}, all tiers": [one for one in rows if one.kind.startswith(f"{hard},")],
    }
    found = {name: group for name, group in alike.items() if _enough(group)}
    if found:
        return found
    steady = [one for one in rows if one.kind.startswith(f"{HARD[0]},")]
    wide = {f"{HARD[0]}, all tiers": steady, "all": list(rows)}
    few = {name: group for name, group in alike.items() if len(group) >= ENOUGH}  # of too few sources to stand alone
    return {**few, **{name: group for name, group in wide.items() if _enough(group)}}


def made(tier: Tier, kind: str, rows: Sequence[Residual]) -> Factors | None:
    """A kind's factors in a tier."""
    found = [factors(group) for group in neighbours(tier, kind, rows).values()]
    return Factors(*(max(side) for side in zip(*found, strict=True))) if found else None


def holds(by: Factors, one: Residual) -> bool:
    """Whether a stretched interval has the figure inside."""
    return -by.below <= one.at <= by.above


def left_out(rows: Sequence[Residual]) -> list[tuple[Residual, bool]]:
    """Each score, and whether an interval that was made without its source holds it."""
    others = {name: [one for one in rows if one.source != name] for name in {one.source for one in rows}}
    keys = {(one.source, one.tier, one.kind) for one in rows}
    by = {key: made(key[1], key[2], others[key[0]]) or Factors() for key in keys}
    return [(one, holds(by[one.source, one.tier, one.kind], one)) for one in rows]


def calibration(rows: Sequence[Residual]) -> Calibration:
    """The table."""
    held = left_out(rows)
    tiers = {tier: {kind: _kind(tier, kind, rows, held) for kind in kinds()} for tier in TIERS}
    return {"schema": intervals.SCHEMA, "covered": COVERED, "tiers": tiers}


def _kind(tier: Tier, kind: str, rows: Sequence[Residual], held: Sequence[tuple[Residual, bool]]) -> Kind:
    """One kind's row: the scores that decide its width, and how many of them were inside when they were left out."""
    used = neighbours(tier, kind, rows)
    by = made(tier, kind, rows) or Factors()
    behind = {one for group in used.values() for one in group}
    shares = [inside for one, inside in held if one in behind]
    return {"below": by.below, "above": by.above, "rows": len(shares), "sources": len({one.source for one in behind}),
            "inside": round(sum(shares) / max(1, len(shares)), 3), "of": list(used)}  # fmt: skip


def text(rows: Sequence[Residual], made_of: Calibration) -> str:
    """The page."""
    parts = [INTRO, "## Together\n"]
    parts += table(("tier", "runs", "sources", "inside", "one vote a source"), [*_together(rows)])
    for tier in TIERS:
        parts.append(f"## {tier}\n")
        parts += table(
            ("kind of job", "below", "above", "runs", "sources", "inside", "widths of"),
            [_line(kind, found) for kind, found in made_of["tiers"][tier].items()],
        )
    return "\n".join(parts)


def _together(rows: Sequence[Residual]) -> Iterable[tuple[str, ...]]:
    every = left_out(rows)
    for tier in TIERS:
        held = [one for one in every if one[0].tier == tier]
        if held:
            yield _share(tier, held)
    yield _share("all", every)


def _share(name: str, held: Sequence[tuple[Residual, bool]]) -> tuple[str, ...]:
    sources: dict[str, list[bool]] = {}
    for one, inside in held:
        sources.setdefault(one.source, []).append(inside)
    votes = [sum(each) / len(each) for each in sources.values()]
    share = percent(sum(inside for _, inside in held) / len(held))
    return name, str(len(held)), str(len(sources)), share, percent(sum(votes) / len(votes))


def _line(kind: str, found: Mapping[str, object]) -> tuple[str, ...]:
    of = found["of"]
    assert isinstance(of, list)
    own = "its own" if of == [kind] else "; ".join(of)
    return (
        kind, f"{found['below']:.2f}", f"{found['above']:.2f}", str(found["rows"]), str(found["sources"]),
        percent(float(str(found["inside"]))), own,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.intervals", description=__doc__)
    parser.add_argument("--kept", action="store_true", help="the scores of data/residuals.jsonl, without measuring")
    options = parser.parse_args(argv)
    rows = read() if options.kept else measured()
    if not options.kept:
        FILE.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in rows), encoding="utf-8")
    found = calibration(rows)
    intervals.TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text(rows, found) + "\n", encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
