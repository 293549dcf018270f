"""SLURM's host lists: `gpu[01-03,7],login`, and the names in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAMES = 100_000


def expand(pattern: str) -> list[str]:
    """The names in a host list: "gpu[1-3,7],cpu1" -> gpu1 gpu2 gpu3 gpu7 cpu1 (at most 100,000 per range)."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", pattern):
        names += _part(part)
    return names


def _part(part: str) -> list[str]:
    found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if found is None:
        return [part]
    names: list[str] = []
    for piece in found[2].split(","):
        low, _, high = piece.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            continue
        last = min(int(high or low), int(low) + MAX_NAMES)
        tails = _part(found[3])
        for number in range(int(low), last + 1):
            names += [f"{found[1]}{number:0{len(low)}d}{tail}" for tail in tails]
            if len(names) > MAX_NAMES:
                return names
    return names


def fold(names: Iterable[str]) -> str:
    """The shortest host list of the names, their order kept within runs: gpu1 gpu2 gpu3 -> "gpu[1-3]"."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        found = re.fullmatch(r"(.*?)(\d+)", name)
        if found is None:
            plain.append(name)
            continue
        number = found[2]
        width = len(number) if number.startswith("0") else 0
        groups.setdefault((found[1], width), []).append(int(number))
    parts = []
    for (stem, width), numbers in groups.items():
        runs = _runs(sorted(numbers), width)
        single = len(runs) == 1 and "-" not in runs[0]
        parts.append(f"{stem}{runs[0]}" if single else f"{stem}[{','.join(runs)}]")
    return ",".join([*parts, *plain])


def _runs(numbers: list[int], width: int) -> list[str]:
    runs: list[str] = []
    start = before = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == before + 1:
            before = number
            continue
        runs.append(f"{start:0{width}d}" + (f"-{before:0{width}d}" if before > start else ""))
        start = before = number
    return runs


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts gpu2 before gpu10, as the controller sorts its nodes."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.findall(r"\d+|\D+", name))
