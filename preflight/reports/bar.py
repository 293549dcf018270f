"""The parts of an estimate as a bar against the capacity."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.reports.style import Look
from preflight.vocabulary.findings import Part
from preflight.vocabulary.words import gib

_BLOCKS = "█▓▒░▞"
_LETTERS = "#=+:o"
_STYLES = ("blue", "magenta", "cyan", "green", "yellow")
_OTHER = Part("other", 0)
_LONGEST = 56


def bar(parts: Sequence[Part], capacity: int | None, look: Look, width: int) -> list[str]:
    """The bar with a mark at the capacity, and its legend. The five largest parts have different fills.

    A column is another number of bytes in each bar, so bars cannot be compared with each other.
    """
    shown = grouped(parts)
    total = sum(part.bytes for part in shown)
    if total <= 0:
        return []
    room, width = width, max(20, min(width - 2, _LONGEST))
    fills = _BLOCKS if look.unicode else _LETTERS
    scale = max(total, capacity or 0)
    cells: list[str] = []
    legend = []
    done = 0
    for index, part in enumerate(shown):
        fill = fills[index] if part.name != _OTHER.name else ("·" if look.unicode else ".")
        style = _STYLES[index % len(_STYLES)]
        until = round((done + part.bytes) * width / scale)
        cells += [look.paint(fill, style)] * (until - len(cells))
        done += part.bytes
        text = f"{part.name.replace('_', '-')} {gib(part.bytes)}"
        legend.append((f"{look.paint(fill, style)} {text}", len(text) + 2))
    if capacity is not None:
        cells += [" "] * (width - len(cells))
        at = min(round(capacity * width / scale), width)
        cells.insert(at, look.paint("│" if look.unicode else "|", "bold red" if total > capacity else "bold green"))
    return ["".join(cells).rstrip(), *_filled(legend, room)]


def _filled(entries: Sequence[tuple[str, int]], width: int) -> list[str]:
    """Entries (text, columns) in lines, with two blanks between them. No entry is broken."""
    lines: list[list[str]] = [[]]
    used = 0
    for text, size in entries:
        if lines[-1] and used + 2 + size > width:
            lines.append([])
            used = 0
        lines[-1].append(text)
        used += size + 2
    return ["  ".join(line) for line in lines]


def grouped(parts: Sequence[Part]) -> list[Part]:
    """The largest parts in their order, and the others as one part."""
    kept = sorted((part for part in parts if part.bytes > 0), key=lambda part: -part.bytes)[: len(_BLOCKS)]
    rest = sum(part.bytes for part in parts if part.bytes > 0 and part not in kept)
    return [part for part in parts if part in kept] + ([Part(_OTHER.name, rest)] if rest else [])
