"""A memory law for a person to read: its dimensions, the moments that rule as formulas, and which one rules where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.memory.device.law.law import Laws, Regions, Row, regions
from preflight.memory.device.law.workload import Resolved
from preflight.reports.style import Look, wrap
from preflight.vocabulary.estimates import LENGTHS
from preflight.vocabulary.job import Job

MEANINGS = {
    "b": "batch", "s": "length", "t": "target or text length", "m": "image tokens", "n": "image patches",
    "L": "layers", "Ld": "decoder layers", "Lt": "text layers", "h": "width", "a": "heads", "k": "key-value heads",
    "d": "head size", "f": "feed-forward width", "V": "vocabulary or classes", "P": "positions", "B": "buckets",
    "p": "patch size", "D": "projection width", "r": "LoRA rank", "M": "mel bins", "X": "experts",
    "K": "experts per token", "E": "embedding width", "i": "image size",
}  # fmt: skip
"""What the dimensions of laws are called (memory/device/families)."""


def law_lines(job: Job, resolved: Resolved, laws: Laws, look: Look) -> Iterator[str]:
    """The law of a job's training step."""
    law = laws.reading((job.train.grad_accum or 1) > 1, job.train.outputs_kept in ("step", "loop"))
    dims = resolved.all_dims
    setup = ", ".join(
        f"{name} {value}" for name, value in resolved.setup.wire().items() if value not in (None, False, {})
    )
    yield look.paint(f"law of a training step ({setup})", "bold")
    named = (
        f"{name} = {size:,} {MEANINGS.get(name, '')}".rstrip()
        for name, size in dims.items()
        if name not in ("b", "s", "m")
    )
    yield wrap("  " + ", ".join(named), look.width, "  ")
    length = next((name for name in ("s", "m", "t") if name in resolved.lengths), None)
    if length is None:
        return
    longest = dims.get("P", max(LENGTHS))
    lengths = [size for size in LENGTHS if size <= longest] if length != "m" else [dims["m"]]
    found = regions(law, dims, length, lengths or [longest])
    for number, row in enumerate(found.ruling):
        yield f"  {look.paint(_letter(number), 'bold cyan')} {row.phase}, {row.where or 'outside of modules'}:"
        yield from (f"      {text}" for text in _by_part(row))
    yield f"  {found.others:,} more moments are the largest nowhere below"
    yield from _table(found, length, look)


def _by_part(row: Row) -> Iterator[str]:
    """The terms of a moment, a line for each part of memory."""
    parts: dict[str, list[tuple[float, str]]] = {}
    for coefficient, monomial, part in row.terms:
        product = " ".join(name if power == 1 else f"{name}^{power}" for name, power in monomial)
        parts.setdefault(part, []).append((coefficient, f"{abs(coefficient):g} {product}".rstrip()))
    for part, terms in parts.items():
        text = ""
        for coefficient, term in terms:
            text += (" - " if coefficient < 0 else " + " if text else "") + term
        yield f"{part:<12}{text}"


def _table(found: Regions, length: str, look: Look) -> Iterator[str]:
    """Which moment is the largest, by batch and length."""
    lengths = list(next(iter(found.grid.values())))
    yield look.paint(f"  the largest moment by batch and {MEANINGS.get(length, length)}", "bold")
    yield "  " + " " * 8 + "".join(f"{size:>7,}" for size in lengths)
    for batch, row in found.grid.items():
        yield f"  {batch:>8}" + _cells(row)


def _cells(row: Mapping[int, int]) -> str:
    return "".join(f"{_letter(number):>7}" for number in row.values())


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number)
