"""Drawings as SVG inside a page: the same descriptions as the terminal draws. Colours are classes of the page's style.

Each drawing has a title for screen readers. What it shows also stands in a table beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from preflight.reports.bar import grouped
from preflight.reports.figures import OUTSIDE, MeasuredFigure, StepFigure
from preflight.reports.streams import clean
from preflight.vocabulary.estimates import ALL_PARTS, Interval
from preflight.vocabulary.findings import Part
from preflight.vocabulary.words import gib

COLOURS = (
    "#8c959f", "#2f6db5", "#c2641a", "#2d8a57", "#b03a48", "#7a5ea8", "#8a6d2f", "#0d7f8c",
)  # fmt: skip
"""The fills c0 to c7 on a light ground."""
SHAPES = (
    ".grid{stroke:var(--line)}.phase{stroke:var(--soft);stroke-dasharray:2 3}"
    ".limit{stroke:var(--ink);stroke-width:2;stroke-dasharray:6 3}"
    ".range{stroke:var(--ink);stroke-width:2}.peak{fill:var(--ink)}"
    + "".join(f".c{at}{{fill:var(--c{at})}}" for at in range(len(COLOURS)))
)
"""The style of what is drawn, by colours of the page."""
LIGHT = "--bg:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;" + "".join(
    f"--c{at}:{colour};" for at, colour in enumerate(COLOURS)
)
WIDTH, HEIGHT = 880, 240
_LEFT, _RIGHT, _BELOW, _ABOVE = 56, 12, 24, 22


def text_of(text: object) -> str:
    """Text of the user inside a page: no markup, no control characters, no words that a build service reads."""
    return escape(clean(str(text))).replace("##", "&#35;&#35;")


def _of_size(height: int, title: str, body: str) -> str:
    """A drawing. Its title is read in its place."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text_of(title)}"><title>{text_of(title)}</title>'
        f"{body}</svg>"
    )


def colour_of(name: str, at: int) -> str:
    """The class of a part: the same in all drawings of a GPU's memory; else by its place."""
    known = (OUTSIDE, *ALL_PARTS)
    return f"c{known.index(name) if name in known else 0 if name in ('context', 'allocator') else (at + 2) % 8}"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Texts beside their colours."""
    key = '<svg class="key" viewBox="0 0 10 10" aria-hidden="true"><rect class="{}" width="10" height="10"/></svg>'
    items = "".join(f"<li>{key.format(colour)}{text_of(text)}</li>" for text, colour in entries)
    return f'<ul class="legend">{items}</ul>'


def step(figure: StepFigure, title: str) -> str:
    """Memory through the step, the parts above each other, with the phases and the line of the capacity."""
    return _of_size(HEIGHT, title, _step(figure)) + legend(
        (name, colour_of(name, at)) for at, (name, _) in enumerate(figure.layers)
    )


def file_of_step(figure: StepFigure, title: str) -> str:
    """The same drawing as a file of its own, with its title above and its legend below, on a light ground."""
    keys, x = [], float(_LEFT)
    for at, (name, _) in enumerate(figure.layers):
        keys.append(f'<rect class="{colour_of(name, at)}" x="{x:.0f}" y="4" width="10" height="10"/>')
        keys.append(f'<text x="{x + 14:.0f}" y="13">{text_of(name)}</text>')
        x += 30 + 6.5 * len(name)
    height = HEIGHT + 56
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{text_of(title)}"><title>{text_of(title)}</title>'
        f"<style>svg{{{LIGHT}background:var(--bg)}}text{{fill:var(--ink);font:11px sans-serif}}{SHAPES}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="{_LEFT}" y="18" font-weight="bold">{text_of(title)}</text>'
        f'<g transform="translate(0 24)">{_step(figure)}</g>'
        f'<g transform="translate(0 {HEIGHT + 32})">{"".join(keys)}</g></svg>\n'
    )


def _step(figure: StepFigure) -> str:
    return "".join([*_scale(figure.top), *_layers(figure), *_phases(figure), *_limit(figure), _peak(figure)])


def _x(at: float, count: int) -> float:
    return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * at / count, 1)


def _y(size: float, top: int) -> float:
    return round(HEIGHT - _BELOW - (HEIGHT - _BELOW - _ABOVE) * size / max(top, 1), 1)


def _scale(top: int) -> Iterator[str]:
    for quarter in range(5):
        size = top * quarter / 4
        y = _y(size, top)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{size / 2**30:.1f}</text>'


def _layers(figure: StepFigure) -> Iterator[str]:
    below = [0] * len(figure.columns)
    count = len(figure.columns)
    for at, (name, sizes) in enumerate(figure.layers):
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        upper, lower = _edge(above, count, figure.top), _edge(below, count, figure.top, back=True)
        yield f'<path class="{colour_of(name, at)}" d="M{upper}L{lower}Z"/>'
        below = above


def _edge(sizes: Sequence[int], count: int, top: int, back: bool = False) -> str:
    """The upper edge of columns from left to right, or from right to left."""
    points = [f"{_x(at + side, count)},{_y(size, top)}" for at, size in enumerate(sizes) for side in (0, 1)]
    return "L".join(reversed(points) if back else points)


def _phases(figure: StepFigure) -> Iterator[str]:
    start, count = 0, len(figure.columns)
    for phase, run in groupby(column.phase for column in figure.columns):
        width = len(list(run))
        x = _x(start, count)
        yield f'<line class="phase" x1="{x}" x2="{x}" y1="{_ABOVE}" y2="{HEIGHT - _BELOW + 4}"/>'
        if width * (WIDTH - _LEFT) / count > 7 * len(phase):
            yield f'<text x="{x + 4}" y="{HEIGHT - 8}">{text_of(phase)}</text>'
        start += width


def _limit(figure: StepFigure) -> Iterator[str]:
    if figure.capacity is not None:
        y = _y(figure.capacity, figure.top)
        yield f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{WIDTH - _RIGHT}" y="{y - 5}" text-anchor="end">GPU {gib(figure.capacity)}</text>'


def _peak(figure: StepFigure) -> str:
    """A mark at the highest column, with its bytes above it."""
    count = len(figure.columns)
    x, y = _x(figure.columns.index(figure.peak) + 0.5, count), _y(figure.peak.height, figure.top)
    anchor = "start" if x < WIDTH / 4 else "end" if x > WIDTH * 3 / 4 else "middle"
    return (
        f'<circle class="peak" cx="{x}" cy="{y}" r="4"/>'
        f'<text x="{x}" y="{y - 8}" text-anchor="{anchor}">peak {gib(figure.peak.height)}</text>'
    )


def bar(parts: Sequence[Part], capacity: int | None, title: str) -> str:
    """The parts beside each other against the capacity, as `reports.bar` groups them."""
    shown = grouped(parts)
    scale = max(sum(part.bytes for part in shown), capacity or 0, 1)
    body, x = [], 0.0
    for at, part in enumerate(shown):
        width = part.bytes * WIDTH / scale
        body.append(f'<rect class="{colour_of(part.name, at)}" x="{x:.1f}" y="4" width="{width:.1f}" height="22"/>')
        x += width
    if capacity is not None:
        at_capacity = min(capacity * WIDTH / scale, WIDTH - 1)
        body.append(f'<line class="limit" x1="{at_capacity:.1f}" x2="{at_capacity:.1f}" y1="0" y2="30"/>')
    names = [
        (f"{part.name.replace('_', '-')} {gib(part.bytes)}", colour_of(part.name, at)) for at, part in enumerate(shown)
    ]
    return _of_size(30, title, "".join(body)) + legend(names)


def measured(figure: MeasuredFigure, title: str) -> str:
    """Bars of what was measured, and below those of each tier what the law said, with its interval as a line."""
    body: list[str] = []
    y = 0.0
    for tier in figure.tiers:
        body.append(f'<text x="0" y="{y + 13:.0f}">{text_of(tier.tier)}</text>')
        rows: list[tuple[str, int, Interval | None, str]] = [(name, size, None, "c1") for name, size in tier.phases]
        if tier.law is not None:
            rows.append(("the law", tier.law.expected, tier.law, "c2"))
        for name, size, interval, colour in rows:
            width = max(1.0, _along(size, figure.top) - _NAMES)
            body.append(f'<text x="{_NAMES - 6}" y="{y + 13:.0f}" text-anchor="end">{text_of(name)}</text>')
            body.append(f'<rect class="{colour}" x="{_NAMES}" y="{y + 3:.0f}" width="{width:.1f}" height="12"/>')
            end = _NAMES + width
            if interval is not None:
                low, end = _along(interval.low, figure.top), max(end, _along(interval.high, figure.top))
                body.append(f'<line class="range" x1="{low:.1f}" x2="{end:.1f}" y1="{y + 9:.0f}" y2="{y + 9:.0f}"/>')
            body.append(f'<text x="{end + 6:.1f}" y="{y + 13:.0f}">{gib(size)}</text>')
            y += 18
        y += 8
    entries = [("measured", "c1")]
    if any(tier.law is not None for tier in figure.tiers):
        entries.append(("predicted by the law, with its interval", "c2"))
    return _of_size(round(y), title, "".join(body)) + legend(entries)


_NAMES, _FIGURES = 160, 90
"""Room to the left of bars for names, and to the right of them for figures."""


def _along(size: int, top: int) -> float:
    return _NAMES + (WIDTH - _NAMES - _FIGURES) * size / max(top, 1)
