"""Dates and times as sbatch reads them in --begin and --deadline: whether it takes them (parse_time, 22.05)."""

from __future__ import annotations

import re

_NAMED = re.compile(r"today|tomorrow|midnight|noon|fika|teatime", re.IGNORECASE)
_NOW = re.compile(r"now[ \t]*(?:[+-]\s*\d[\d\s]*(?:(?:second|minute|hour|day|week)s?)?)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*([ap]m)?", re.IGNORECASE)
_ISO = re.compile(r"\d{4}-(\d{1,2})-(\d{1,2})")
_DATE = re.compile(r"(\d{2}|\d(?!\d))[./]?(\d{2}|\d(?!\d))[./]?(?:\d\d)?")
"""Months and days take two digits where two follow each other: `12` is a month without a day."""
_SINCE_1970 = re.compile(r"uts(\d+)", re.IGNORECASE)


def is_date(text: str) -> bool:
    """Words and numbers after each other, of which any may be left out: `now+1hour`, `16:00`, `2030-01-20T12:34`."""
    since = _SINCE_1970.fullmatch(text)
    if since is not None:
        return int(since[1]) >= 1_000_000
    at = 0
    while at < len(text):
        if text[at] in " \t-T" and not _NAMED.match(text, at):
            at += 1
            continue
        end = _piece(text, at)
        if end is None:
            return False
        at = end
    return True


def _piece(text: str, at: int) -> int | None:
    """Where one word, time of day or date ends; None: it is none."""
    named = _NAMED.match(text, at)
    if named is not None:
        return named.end()
    now = _NOW.match(text, at)
    if now is not None:
        return now.end() if now.end() == len(text) else None  # only a difference may follow
    clock = _CLOCK.match(text, at)
    if clock is not None:
        hour, minute, second, half = int(clock[1]), int(clock[2]), int(clock[3] or 0), (clock[4] or "").lower()
        late = hour > 12 if half else hour > 23
        return None if late or minute > 59 or second > 59 else clock.end()
    iso = _ISO.match(text, at)
    found = iso or _DATE.match(text, at)
    if found is None or text[at + 1 : at + 2] == ":" or text[at + 2 : at + 3] == ":":
        return None
    return found.end() if 1 <= int(found[1]) <= 12 and 1 <= int(found[2]) <= 31 else None
