"""What recorded runs used of what they had: text, JSON, a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins

from preflight.reports.page import page
from preflight.reports.page import table as markup
from preflight.reports.style import Look, table
from preflight.reports.svg import text_of
from preflight.vocabulary.usage import BackTest, Usage, UsedGroup
from preflight.vocabulary.words import gib, plural

VERSION = 1
NO_REASON = "Memory is not the only reason for a GPU: this is no list of mistakes."
COLUMNS: tuple[tuple[str, Callable[[UsedGroup], str]], ...] = (
    ("team", lambda one: one.team),
    ("model", lambda one: one.model),
    ("GPU", lambda one: one.gpu or "-"),
    ("runs", lambda one: f"{one.runs:,}"),
    ("died", lambda one: f"{one.out_of_memory:,}" if one.out_of_memory else "-"),
    ("predicted", lambda one: _size(one.predicted)),
    ("measured", lambda one: _size(one.measured)),
    ("ratio", lambda one: "-" if one.ratio is None else f"{one.ratio:.2f}"),
    ("most used", lambda one: _size(one.most)),
    ("of", lambda one: _size(one.capacity)),
    ("GiB hours unused", lambda one: f"{one.unused_hours:,.1f}" if one.unused is not None else "-"),
    ("node unused", lambda one: f"{_size(one.node_unused)} of {_size(one.node_limit)}" if one.node_limit else "-"),
    ("peak fits on", lambda one: one.smaller_gpu or "-"),
)
"""Heading -> the cell of a group."""
LEGEND = (
    "predicted and measured: reserved bytes, medians over jobs. most used: the highest peak of a process. "
    "GiB hours unused: memory of GPUs that was held and never used, times hours."
)


def text(found: Usage, look: Look) -> str:
    """The report for people."""
    return "\n".join(_lines(found, look)) + "\n"


def _lines(found: Usage, look: Look) -> Iterator[str]:
    yield _heading(found)
    if not found.groups:
        return
    rows = [[cell(one) for _, cell in COLUMNS] for one in found.groups]
    yield from table(rows, look, [name for name, _ in COLUMNS], range(3, len(COLUMNS) - 1))
    yield LEGEND
    yield NO_REASON
    for test in found.tests:
        yield f"{test.tier}: {_tested(test, found.promised)}"
    if found.died:
        yield _died(found)


def document(found: Usage) -> dict[str, Any]:
    """The report for programs. Names and meanings only ever gain fields."""
    return {"version": VERSION, **to_builtins(found)}


def html(found: Usage) -> str:
    """The report as one file that asks for nothing else."""
    headings = [(text_of(name), "*" if at < 3 else "num") for at, (name, _) in enumerate(COLUMNS)]
    rows = [
        [(text_of(cell(one)), "" if at < 3 else "num") for at, (_, cell) in enumerate(COLUMNS)] for one in found.groups
    ]
    tests = [[(text_of(one.tier), ""), (text_of(_tested(one, found.promised)), "")] for one in found.tests]
    parts = [f"<h1>{text_of(_heading(found))}</h1>"]
    if rows:
        parts += [
            markup("What was asked for, and what was used", headings, rows, "space"),
            f'<p class="soft">{text_of(LEGEND)}</p><p>{text_of(NO_REASON)}</p>',
        ]
    if tests:
        parts.append(markup("Forecasts made before the runs, against the runs", [("tier", ""), ("", "")], tests))
    if found.died:
        parts.append(f"<p>{text_of(_died(found))}</p>")
    return page("What recorded runs used", "\n".join(parts))


def _heading(found: Usage) -> str:
    teams = len({one.team for one in found.groups})
    words = f"{plural(found.runs, 'run')} of {plural(found.jobs, 'job')}, {plural(teams, 'team')}"
    return words + (f"; {plural(found.left_out, 'run')} without a job left out" if found.left_out else "")


def _tested(test: BackTest, promised: float) -> str:
    return (
        f"{test.inside:,} of {plural(test.jobs, 'job')} in the interval that was forecast ({test.share:.0%}, "
        f"which speaks for {test.low:.0%} to {test.high:.0%} of all such jobs; it is made for {promised:.0%}), "
        f"{test.below:,} below it, {test.above:,} above"
    )


def _died(found: Usage) -> str:
    died = f"{plural(found.died, 'job')} with a forecast ran out of memory"
    return f"{died}; of {found.missed:,} of them the whole forecast was below the GPU's memory"


def _size(size: int | None) -> str:
    return "-" if size is None else gib(size)
