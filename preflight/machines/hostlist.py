"""SLURM's host lists: `gpu[01-03,7],login`, and the names in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product

from preflight.vocabulary.budgets import HOST_CHARACTERS, HOST_NAMES

DIGITS = 18
"""Digits of the longest number in a name."""


def expand(pattern: str) -> list[str]:
    """The names in a host list: "gpu[1-3,7],cpu1" -> gpu1 gpu2 gpu3 gpu7 cpu1. Of a list with more than HOST_NAMES,
    one more than that."""
    names: list[str] = []
    characters = 0
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", pattern):
        for name in _names(part):
            names.append(name)
            characters += len(name)
            if len(names) > HOST_NAMES or characters > HOST_CHARACTERS:
                return names
    return names


def _names(part: str) -> Iterator[str]:
    """The names of a part with any number of ranges: "rack[1-2]-gpu[1-4]"."""
    pieces = re.split(r"\[([^\]]*)\]", part)  # texts and what is in brackets, in turn
    left = HOST_NAMES + len(pieces)
    pools: list[list[str]] = []
    for index, piece in enumerate(pieces):
        pool = list(islice(_numbers(piece), max(1, left))) if index % 2 else [piece]
        left -= len(pool)
        pools.append(pool)
    return map("".join, product(*pools))


def _numbers(text: str) -> Iterator[str]:
    """The numbers of "01-03,7", with their zeros."""
    for piece in text.split(","):
        low, _, high = piece.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or max(len(low), len(high)) > DIGITS:
            continue
        for number in range(int(low), int(high or low) + 1):
            yield f"{number:0{len(low)}d}"


def fold(names: Iterable[str]) -> str:
    """The shortest host list of the names, their order kept within runs: gpu1 gpu2 gpu3 -> "gpu[1-3]"."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        if not 0 < len(number) <= DIGITS:
            plain.append(name)
            continue
        width = len(number) if number.startswith("0") else 0
        groups.setdefault((stem, width), []).append(int(number))
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
    return tuple(_part(part) for part in re.findall(r"\d+|\D+", name))


def _part(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isdecimal() and len(text) <= DIGITS else (1, 0, text)
