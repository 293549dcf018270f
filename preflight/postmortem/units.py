"""Sizes in logs, converted to bytes; None for a size that no memory can have."""

from __future__ import annotations

import re
from typing import Literal

_SCALE = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
SIZE = r"(\d{1,15}(?:\.\d{1,15})?)\s*(bytes|[KMGTP]i?B)"
"""Units as c10's format_size writes them (GiB = 2^30), and as people quote them."""
_SIZE = re.compile(SIZE, re.IGNORECASE)
_SLURM = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTP]?)([nc]?)", re.IGNORECASE)

LARGEST = 1 << 50
"""A petabyte: no memory is that large. WSL reports 2^64 bytes of memory in use."""


def size(number: str, unit: str) -> int | None:
    """Bytes of "7.45", "GiB"."""
    found = round(float(number) * _SCALE[unit[0].lower() if unit.lower() != "bytes" else ""])
    return found if found < LARGEST else None


def parse(text: str) -> int | None:
    """Bytes of "7.45 GiB"."""
    found = _SIZE.fullmatch(text.strip())
    return size(found[1], found[2]) if found else None


def kib(text: str) -> int | None:
    """Bytes of the kernel's kB, which is 1024."""
    found = int(text) * 1024 if text.isascii() and text.isdecimal() and len(text) < 20 else None
    return found if found is not None and found < LARGEST else None


def count(text: str) -> int | None:
    """Bytes of a plain number."""
    number = int(text[:18])
    return number if number < LARGEST else None


def kubernetes(number: str, unit: str) -> int | None:
    """Bytes of a Kubernetes quantity: Gi is 2^30, G is 10^9."""
    if unit.endswith("i"):
        return slurm(number + unit[0])[0]
    power = "KMGT".index(unit) + 1 if unit else 0
    return round(float(number) * float(1000**power))


def slurm(text: str) -> tuple[int | None, Literal["node", "cpu", ""]]:
    """Bytes of "72.5G", "76021880K", "128Gn" (per node) or "4000Mc" (per CPU: before 21.08).

    SLURM counts in powers of 1024; without a unit RSS is in bytes.
    """
    found = _SLURM.fullmatch(text.strip())
    if found is None:
        return None, ""
    bytes_ = round(float(found[1]) * _SCALE[found[2].lower()])
    per: Literal["node", "cpu", ""] = "node" if found[3].lower() == "n" else "cpu" if found[3] else ""
    return (bytes_ if bytes_ < LARGEST else None), per
