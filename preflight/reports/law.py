"""A memory law as text: its dimensions, its largest moments as formulas, and which is the largest where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from preflight.memory.device.law.law import Law, LawRow, Regions, regions
from preflight.reports.style import Look, table, wrap
from preflight.vocabulary.estimates import LENGTHS

MEANINGS = {
    "b": "batch", "s": "length", "t": "target or text length", "w": "frames of sound",
    "u": "image side in units of 64 pixels", "i": "image side in pixels", "n": "image patches", "m": "image tokens",
    "o": "objects of an image", "r": "LoRA rank", "V": "vocabulary or classes", "h": "width", "a": "heads",
    "k": "key-value heads", "d": "head size", "R": "rotated part of a head", "f": "feed-forward width", "L": "layers",
    "Ld": "decoder layers", "Lt": "text layers", "P": "positions", "B": "position buckets", "p": "patch size",
    "D": "projection width", "M": "mel bins", "X": "experts", "K": "experts per token",
    "F": "width of a shared expert or of the decoder", "E": "embedding width",
}  # fmt: skip
"""Dimensions of laws in words (docs/glossary.md has the same)."""


def law_lines(
    law: Law, setup: Mapping[str, object], dims: Mapping[str, int], stated: Collection[str], look: Look
) -> Iterator[str]:
    """The law of a training step. `setup`: its settings; `dims`: all dimensions; `stated`: those that are lengths."""
    words = ", ".join(f"{name} {value}" for name, value in setup.items() if value not in (None, False, {}))
    yield look.paint(f"law of a training step ({words})", "bold")
    named = (
        f"{name} = {size:,} {MEANINGS.get(name, '')}".rstrip()
        for name, size in dims.items()
        if name not in ("b", "s", "m")
    )
    yield wrap("  " + ", ".join(named), look.width, "  ")
    length = next((name for name in ("s", "m", "t") if name in stated), None)
    if length is None:
        return
    longest = dims.get("P", max(LENGTHS))
    lengths = [size for size in LENGTHS if size <= longest] if length != "m" else [dims["m"]]
    found = regions(law, dims, length, lengths or [longest])
    for number, row in enumerate(found.ruling):
        yield f"  {look.paint(_letter(number), 'bold cyan')} {row.phase}, {row.where or 'outside of modules'}:"
        yield from table(_by_part(row), look, indent=6)
    yield f"  {found.others:,} other moments are never the largest in this table"
    yield from _table(found, length, look)


def _by_part(row: LawRow) -> Iterator[tuple[str, str]]:
    """The parts of memory at a moment, each with its terms."""
    parts: dict[str, list[tuple[float, str]]] = {}
    for coefficient, monomial, part in row.terms:
        product = " ".join(name if power == 1 else f"{name}^{power}" for name, power in monomial)
        parts.setdefault(part, []).append((coefficient, f"{abs(coefficient):g} {product}".rstrip()))
    for part, terms in parts.items():
        text = ""
        for coefficient, term in terms:
            text += (" - " if coefficient < 0 else " + " if text else "") + term
        yield part, text


def _table(found: Regions, length: str, look: Look) -> Iterator[str]:
    """Which moment is the largest, by batch and length."""
    lengths = [f"{size:,}" for size in next(iter(found.grid.values()))]
    yield look.paint(f"  the largest moment by batch and {MEANINGS.get(length, length)}", "bold")
    rows = [(str(batch), *map(_letter, row.values())) for batch, row in found.grid.items()]
    yield from table(rows, look, ("batch", *lengths), right=range(len(lengths) + 1))


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number)
