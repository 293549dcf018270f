"""A baseline: findings that were there when a project began to check, so that only new ones fail.

An entry is a rule, a file and a key (the route to the value, else the Job fields concerned), with a count: lines move,
keys stay.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from preflight.errors import UsageError
from preflight.findings import Finding

VERSION = 1
Key = tuple[str, str, str]


def key_of(finding: Finding, path: str) -> Key:
    """What identifies a finding across runs; `path` as the baseline names it."""
    route = finding.origin.route if finding.origin is not None else None
    return finding.rule, path, ".".join(map(str, route)) if route else ",".join(finding.settings)


def read(path: Path) -> Counter[Key]:
    """The counts of a baseline file. Raises UsageError where there is none or it is not one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(data["version"])
        counts: Counter[Key] = Counter()
        for entry in data["findings"]:
            counts[(str(entry["rule"]), str(entry["path"]), str(entry["key"]))] += int(entry["count"])
    except OSError as error:
        raise UsageError(f"{path}: the baseline cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a baseline of this version; write a new one with --write-baseline") from error
    return counts


def write(path: Path, keys: Iterable[Key]) -> None:
    """A baseline of these findings, written whole or not at all; an entry per line, sorted: its diffs are small."""
    counts = sorted(Counter(keys).items())
    rows = [json.dumps({"rule": r, "path": p, "key": k, "count": n}, ensure_ascii=False) for (r, p, k), n in counts]
    body = ",\n  ".join(rows)
    text = (
        f'{{"version": {VERSION}, "findings": [\n  {body}\n]}}\n'
        if rows
        else f'{{"version": {VERSION}, "findings": []}}\n'
    )
    replace_file(path, text)


def replace_file(path: Path, text: str) -> None:
    """Writes `path` through a temporary file beside it: a reader sees the old text or the new. Raises UsageError."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def split(findings: Iterable[tuple[Finding, str]], known: Counter[Key]) -> tuple[list[bool], list[Key]]:
    """For each finding whether it is new, and the baseline's entries that matched fewer findings than they count."""
    left = Counter(known)
    new = []
    for finding, path in findings:
        key = key_of(finding, path)
        new.append(left[key] <= 0)
        left[key] -= 1
    return new, sorted(key for key, count in left.items() if count > 0)
