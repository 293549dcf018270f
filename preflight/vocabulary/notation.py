"""Numbers as texts: sizes of memory in a cluster file, times as SLURM writes them, versions of software, settings of
PyTorch's allocator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from preflight.vocabulary.caches import regex

_UNITS = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MOST = 2**63
"""No size in bytes is larger: SLURM and the operating system count in 64 bits."""
_DIGITS = 18
"""Digits of the longest number that is read; 64 bits hold one more."""
_SIZE = regex(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$", re.IGNORECASE)


def parse_size(text: str | int | float) -> int | None:
    """Bytes of "513GB", "1.5 TiB" or "256000"; None where it is no size.

    Like SLURM: units are powers of 1024 with and without the i, and a bare number is MiB (`RealMemory=256000`).
    """
    if isinstance(text, bool):
        return None
    if isinstance(text, (int, float)):
        return scaled(text, 2**20)
    found = _SIZE.match(text)
    return None if found is None else scaled(float(found[1]), _UNITS[found[2].lower()])


def scaled(number: float, unit: float) -> int | None:
    """`number` units, rounded; None where no size can be so large, where it is infinite, and where it is no number."""
    return round(number * unit) if 0 <= number <= _MOST / unit else None


def format_size(size: int) -> str:
    """The shortest exact spelling that `parse_size` reads back: "513GB", "256000MB"."""
    for unit, scale in (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return f"{-(-size // 2**10)}KB"


UNLIMITED = 2**32 - 1
"""Minutes of an unlimited time, as SLURM compares it with limits (INFINITE, slurm.h)."""


def slurm_minutes(text: str) -> int | None:
    """Minutes of a time as sbatch reads it, rounded up: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; UNLIMITED. None: no time.

    time_str2secs in src/common/parse_time.c: an empty field is 0 ("5-" is five days).
    """
    if text.upper() in ("-1", "INFINITE", "UNLIMITED"):
        return UNLIMITED
    days, dash, clock = text.partition("-")
    if not re.fullmatch(r"[\d:-]+", text) or "-" in clock or ":" in days * bool(dash):
        return None
    days, clock = (days, clock) if dash else ("", text)
    parts = clock.split(":")
    given = sum(bool(part) for part in (*parts, *([days] if dash else [])))
    colons = len(parts) - 1
    if not given or colons > 2 or (colons and given < colons + 1 + bool(dash)):
        return None
    if any(len(part) > _DIGITS for part in (*parts, days)):
        return None
    numbers = [int(part or 0) for part in parts]
    if dash:
        hours, mins, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, mins, seconds = numbers
    else:
        hours, mins, seconds = 0, *(*numbers, 0)[:2]
    total = (int(days or 0) * 24 + hours) * 3600 + mins * 60 + seconds
    return -(-total // 60)


NEWEST = (10**6,)
"""The version of a library for which no version is stated: it is newer than all others."""


@lru_cache(maxsize=4096)
def release(text: str | None) -> tuple[int, ...] | None:
    """The first three numbers of a version, None where it has none: "2.4+cu121" -> (2, 4), ">=4.46,<5" -> (4, 46)."""
    found = re.search(r"\d+(?:\.\d+){0,2}", (text or "").partition("+")[0])
    numbers = found[0].split(".") if found is not None else []
    return tuple(map(int, numbers)) if numbers and max(map(len, numbers)) <= _DIGITS else None


def major_minor(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version, None where it has fewer: "glibc 2.36" -> (2, 36)."""
    numbers = release(text) or ()
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None


def allocator_settings(text: str) -> Iterator[tuple[str, bool | int | float]]:
    """Job fields of PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF since torch 2.9), as in
    "expandable_segments:True,max_split_size_mb:128". A value that torch refuses is left out: such a job does not start.
    """
    for part in text.split(","):
        name, _, value = (one.strip() for one in part.partition(":"))
        if name == "expandable_segments" and value in ("True", "False"):
            yield "train.allocator.expandable_segments", value == "True"
        elif name == "max_split_size_mb" and value.isdecimal() and int(value) > 0:
            yield "train.allocator.max_split_size_mb", int(value)
        elif name in _SHARES and re.fullmatch(r"\d*\.?\d+", value) and 0 < float(value) <= 1:
            yield _SHARES[name], float(value)


_SHARES = {
    "garbage_collection_threshold": "train.allocator.garbage_collection_threshold",
    "per_process_memory_fraction": "train.allocator.per_process_fraction",
}
