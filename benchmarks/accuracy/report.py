"""The tables, as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.accuracy.calibration import answered, classes, held, proposal
from benchmarks.accuracy.fits import DIED_JUDGED_FITS, WORKED_JUDGED_EXCEEDS, Confusion, Judged
from benchmarks.accuracy.remarks import REPORTS, remark
from benchmarks.accuracy.score import UNDER, Duel, Score, Summary, duels, summary
from benchmarks.accuracy.tool import NAME
from benchmarks.accuracy.truth import MIB, TIERS, Run

WORST = 15


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; nothing where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines, ""] if lines else []


def percent(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1%}" if signed else f"{value:.1%}"


def overview(scores: Sequence[Score]) -> Iterator[str]:
    """One line per family and tier: preflight, and the best other tool on the rows that both answer."""
    found = duels(scores, NAME)
    rows = []
    for tier, kind in sorted({(score.tier, score.run.kind) for score in scores}):
        own = summary(s for s in scores if s.tool == NAME and (s.tier, s.run.kind) == (tier, kind))
        if own is None:
            continue
        best = min((d for d in found if (d.tier, d.kind) == (tier, kind)), key=lambda d: d.theirs, default=None)
        other = (
            f"{percent(best.theirs)} ({best.peer}, {best.rows} rows; preflight {percent(best.ours)})" if best else "-"
        )
        answers = f"{own.answered} of {own.answered + own.refused}"
        cells = _cells(own)
        rows.append((kind, tier, answers, *(cells[n] for n in (2, 3, 4, 5, 7)), other))
    head = ("runs", "tier", "answered", "median error", "p90", "worst under", "worst over", "inside",
            "best other tool, median on common rows")  # fmt: skip
    yield "<!-- summary -->\n"
    yield from table(head, rows)
    yield "<!-- end of summary -->\n"


def tiers(scores: Sequence[Score], tools: Sequence[str]) -> Iterator[str]:
    """A table per tier: families, and under each the tools."""
    head = ("family", "tool", "answered", "refused", "median error", "p90", "worst under", "worst over",
            f"under by more than {UNDER:.0%}", "inside the 90 % interval")  # fmt: skip
    for tier in TIERS:
        of_tier = [score for score in scores if score.tier == tier]
        if not of_tier:
            continue
        yield f"### {tier}\n"
        kinds = sorted({score.run.kind for score in of_tier})
        rows = []
        for kind in (*kinds, ""):
            for tool in tools:
                found = summary(s for s in of_tier if s.tool == tool and kind in ("", s.run.kind))
                if found is not None and (found.answered or tool == NAME):
                    rows.append((kind or "**all**", tool, *_cells(found)))
        yield from table(head, rows)


def _cells(found: Summary) -> Sequence[str]:
    counts = (str(found.answered), str(found.refused))
    if not found.answered:
        return (*counts, "-", "-", "-", "-", "-", "-")
    return (*counts, percent(found.median), percent(found.p90), percent(found.worst_under, True),
            percent(found.worst_over, True), percent(found.under), percent(found.inside))  # fmt: skip


def comparison(scores: Sequence[Score]) -> Iterator[str]:
    """Compares the median errors of preflight and of each other tool, on the rows that both answer."""
    found = duels(scores, NAME)
    behind = [duel for duel in found if not duel.first]
    yield (
        f"On rows that both answer, preflight's median error is the smaller one in {len(found) - len(behind)} of "
        f"{len(found)} pairs of a tool and a family within a tier.{' It is not in:' if behind else ''}\n"
    )
    yield from table(("tier", "family", "tool", "rows", "preflight", "the tool"), map(_duel, behind))
    yield "<details><summary>All pairs</summary>\n"
    yield from table(("tier", "family", "tool", "rows", "preflight", "the tool"), map(_duel, found))
    yield "</details>\n"
    only = _alone(scores)
    yield (
        f"preflight estimates {only[0]} figures that no other tool estimates. "
        f"Other tools estimate {only[1]} figures that preflight refuses.\n"
    )


def _duel(duel: Duel) -> Sequence[str]:
    return duel.tier, duel.kind, duel.peer, str(duel.rows), percent(duel.ours), percent(duel.theirs)


def _alone(scores: Sequence[Score]) -> tuple[int, int]:
    answers: dict[tuple[str, str], set[str]] = {}
    for score in scores:
        found = answers.setdefault((score.run.id, score.tier), set())
        if score.estimate is not None:
            found.add(score.tool)
    return sum(a == {NAME} for a in answers.values()), sum(bool(a) and NAME not in a for a in answers.values())


def fitted(judged: Sequence[Judged], found: Confusion) -> Iterator[str]:
    """The confusion table and the reports that were judged wrongly."""
    yield f"{len(judged)} reports of {len({one.incident.group for one in judged})} sources; each source has one vote.\n"
    rows = [
        (name, *(f"{votes[v]:.1f}" for v in votes)) for name, votes in (("died", found.died), ("worked", found.worked))
    ]
    yield from table(("outcome", *found.died), rows)
    yield (
        f'Of the votes with a verdict: died, judged "fits": {percent(found.died_judged_fits)} '
        f'(target {DIED_JUDGED_FITS:.0%}); worked, judged "exceeds": {percent(found.worked_judged_exceeds)} '
        f"(target {WORKED_JUDGED_EXCEEDS:.0%}).\n"
    )
    wrong = [one for one in judged if one.verdict == ("fits" if one.incident.died else "exceeds")]
    yield from table(
        ("judged wrongly", "outcome", "verdict", "probable reason"),
        [(o.incident.id, "died" if o.incident.died else "worked", o.verdict, _doubt(o)) for o in wrong],
    )
    reasons = Counter(_general(one.why) for one in judged if one.verdict == "unknown")
    yield "<details><summary>Why verdicts are unknown</summary>\n"
    yield from table(("reports", "reason"), [(str(n), why) for why, n in reasons.most_common()])
    yield "</details>\n"


def _doubt(judged: Judged) -> str:
    incident = judged.incident
    inferred = f"inferred by the collector: {', '.join(incident.inferred)}" if incident.inferred else ""
    hard = "does not follow from a configuration" if incident.hard else ""
    return "; ".join(filter(None, (REPORTS.get(incident.id, ""), inferred, hard)))


def worst(scores: Sequence[Score], phases: dict[str, str], count: int = WORST) -> Iterator[str]:
    """preflight's largest errors, with their probable reasons."""
    found = sorted(answered(scores, NAME), key=lambda score: -abs(score.error))[:count]
    rows = [
        (s.run.id, s.tier, f"{s.measured / MIB:,.0f}", f"{(s.estimate or 0) / MIB:,.0f}", percent(s.error, True),
         "yes" if s.inside else "no", phases.get(s.run.id, ""), remark(s.run.id))
        for s in found
    ]  # fmt: skip
    head = ("run", "tier", "measured, MiB", "estimate, MiB", "error", "inside", "phase", "probable reason")
    yield from table(head, rows)


def intervals(scores: Sequence[Score]) -> Iterator[str]:
    """Coverage by tier and what makes a run hard; each source left out in turn."""
    rows = []
    for (tier, hard), found in classes(answered(scores, NAME)).items():
        wanted = proposal(found)
        asked = f"{wanted.low - 1:+.1%} to {wanted.high - 1:+.1%}" if wanted else "-"
        for one in held(found):
            rows.append((tier, hard, one.source, str(one.rows), percent(one.stated), percent(one.left_out), asked))
    head = ("tier", "hardness", "source", "rows", "inside the stated interval", "inside one of the other sources",
            "measured / expected of 90 %, a vote per source")  # fmt: skip
    yield from table(head, rows)


def refusals(scores: Sequence[Score]) -> Iterator[str]:
    """preflight's own refusals, by reason."""
    reasons = Counter((s.run.source, _general(s.why)) for s in scores if s.tool == NAME and s.estimate is None)
    yield from table(("figures", "source", "reason"), [(str(n), *why) for why, n in reasons.most_common()])


def _general(why: str) -> str:
    """A reason without the parts that differ between models of one kind."""
    why = re.sub(r" \(near: .*?\)", "", why)
    return re.sub(r"(detectron2|mmdet|timm):\S+", r"\1's models", why)


def unscored(runs: Sequence[Run]) -> Iterator[str]:
    """Rows whose source does not state the tier."""
    found = Counter((run.source, run.stated) for run in runs if not run.measured)
    yield from table(("rows", "source", "what the source says the figure is"),
                     [(str(n), *why) for why, n in found.most_common()])  # fmt: skip
