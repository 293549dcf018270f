"""Recorded runs as a page, and beside an estimate: what was measured, and what the law said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.reports import svg
from preflight.reports.figures import MeasuredFigure, measured_figure
from preflight.reports.page import page, table
from preflight.reports.svg import text_of
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.watched import MeasuredRun
from preflight.vocabulary.words import gib, plural

Cell = tuple[str, str]
_DRAWN = 20
"""The most runs of a page with a drawing, the newest first."""


def render(runs: Sequence[MeasuredRun]) -> str:
    """The page of `preflight runs`."""
    if len(runs) == 1:
        title = f"run {runs[0].name}"
        body = [f"<h1>{text_of(_heading(runs[0]))}</h1>", *_run(runs[0], None)]
    else:
        title = plural(len(runs), "recorded run")
        body = [f"<h1>{title}</h1>", _list(runs)]
        for run in runs[:_DRAWN]:
            body += [f"<h2>{text_of(_heading(run))}</h2>", *_run(run, None)]
        if len(runs) > _DRAWN:
            body.append(f'<p class="soft">A page draws the newest {_DRAWN}. preflight runs RUN has one.</p>')
    return page(f"preflight: {title}", "\n".join(body))


def beside(runs: Sequence[MeasuredRun], found: DeviceEstimate | None) -> Iterator[str]:
    """The runs of a job, in the page of its estimate."""
    if runs:
        yield "<h3>Measured beside predicted</h3>"
    for run in runs:
        yield f"<p>{text_of(_heading(run))}</p>"
        yield from _run(run, found)


def _heading(run: MeasuredRun) -> str:
    took = f"{plural(run.steps, 'step')}, {run.seconds:,.0f} s"
    where = f" on {run.machine}" if run.machine else ""
    return f"run {run.name} of {run.started}: {run.outcome} after {took}{where}"


def _run(run: MeasuredRun, found: DeviceEstimate | None) -> Iterator[str]:
    """One run: how it ended, its peaks, the law's figures beside them."""
    yield f"<p>Job: {text_of(run.job)}.</p>"
    if run.died:
        yield f'<p class="error">{text_of(run.died)}</p>'
    figure = measured_figure(run, found)
    if figure is not None:
        yield svg.measured(figure, f"Measured beside predicted, {_heading(run)}")
        yield _figures(figure, run, found)
    else:
        yield "<p>No peak of a GPU was recorded.</p>"
    if run.host:
        rows: list[list[Cell]] = [
            [(text_of(what.replace("_", " ")), ""), (gib(size), "num")] for what, size in run.host.items()
        ]
        yield table("Host memory, measured", [("what", ""), ("memory", "num")], rows)


def _figures(figure: MeasuredFigure, run: MeasuredRun, found: DeviceEstimate | None) -> str:
    rows: list[list[Cell]] = []
    for tier in figure.tiers:
        law, share = tier.law, tier.share
        phase = next(name for name, size in tier.phases if size == tier.peak)
        predicted = f"{gib(law.expected)} ({gib(law.low)} to {gib(law.high)})" if law is not None else "-"
        inside = "" if law is None else "inside" if law.low <= tier.peak <= law.high else "outside"
        rows.append([
            (text_of(tier.tier), ""), (gib(tier.peak), "num"), (text_of(phase), ""), (predicted, "num"),
            (f"{share:.0%}" if share is not None else "-", "num"), (inside, "warning" if inside == "outside" else ""),
        ])  # fmt: skip
    whose = f"preflight {run.version}, as it was recorded" if run.laws else "this page"
    caption = "Peaks of the run by tier" + (f"; predicted by {whose}" if any(one.law for one in figure.tiers) else "")
    headings = [("tier", ""), ("measured", "num"), ("in phase", ""), ("predicted", "num"),
                ("measured of predicted", "num"), ("interval", "")]  # fmt: skip
    return table(caption, headings, rows)


def _list(runs: Sequence[MeasuredRun]) -> str:
    rows: list[list[Cell]] = []
    for run in runs:
        peak, law = run.peak("reserved"), run.laws.get("reserved")
        end = "error" if run.outcome in ("oom", "killed") else ""
        rows.append([
            (text_of(run.name), ""), (text_of(run.started), ""), (text_of(run.outcome), end), (f"{run.steps:,}", "num"),
            (gib(peak) if peak else "-", "num"), (gib(law.expected) if law is not None else "-", "num"),
            (text_of(run.machine), ""), (text_of(run.job), ""),
        ])  # fmt: skip
    headings = [("run", ""), ("started", ""), ("end", "*"), ("steps", "num"), ("peak, reserved", "num"),
                ("predicted", "num"), ("machine", "*"), ("job", "*")]  # fmt: skip
    return table("Recorded runs, the newest first", headings, rows, "space")
