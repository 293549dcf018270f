"""A baseline: findings that were there when a project began to check, so that only new ones fail.

An entry is a rule, a file and a key (the route to the value, else the Job fields concerned), with a count: lines move,
keys stay.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.reports.outputs import write_output
from preflight.system.files import UnreadableFile, read_text, real
from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.outcome import Report

VERSION = 1
Key = tuple[str, str, str]
_SURROGATE = regex("[\ud800-\udfff]")
"""Surrogates: how Python decodes bytes in a file's name that are not UTF-8. JSON escapes them and restores them."""


def key_of(finding: Finding, path: str) -> Key:
    """The identity of a finding across runs; `path` is relative to the baseline."""
    route = finding.origin.route if finding.origin is not None else None
    return finding.rule, path, ".".join(map(str, route)) if route else ",".join(finding.settings)


def read(path: Path) -> Counter[Key]:
    """The counts of a baseline file. Raises UsageError where there is none or it is not one."""
    import json

    try:
        data = json.loads(read_text(path))
        if data["version"] != VERSION:
            raise ValueError(data["version"])
        counts: Counter[Key] = Counter()
        for entry in data["findings"]:
            counts[(str(entry["rule"]), str(entry["path"]), str(entry["key"]))] += int(entry["count"])
    except UnreadableFile as error:
        raise UsageError(f"{path}: the baseline cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path}: not a baseline of this version; write a new one with --write-baseline") from error
    return counts


def write(path: Path, keys: Iterable[Key]) -> None:
    """A baseline of these findings, written whole or not at all; an entry per line, sorted: its diffs are small."""
    import json

    counts = sorted(Counter(keys).items())
    rows = [json.dumps({"rule": r, "path": p, "key": k, "count": n}, ensure_ascii=False) for (r, p, k), n in counts]
    body = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", ",\n  ".join(rows))
    text = (
        f'{{"version": {VERSION}, "findings": [\n  {body}\n]}}\n'
        if rows
        else f'{{"version": {VERSION}, "findings": []}}\n'
    )
    write_output(path, text)


class Baseline(Struct):
    """A baseline that was read, and how many findings of each key the last look at every report took out.

    Paths in it are relative to the directory it is in, so that it means the same wherever the command runs.
    """

    path: Path
    known: Counter[Key]
    taken: dict[Path, Counter[Key]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, cwd: Path) -> Baseline:
        """The baseline in a file. Raises UsageError."""
        full = real(cwd / path)
        return cls(full, read(full))

    def new(self, report: Report) -> Report:
        """The report without the findings that the baseline lists, each as often as it is listed."""
        left, taken = Counter(self.known), Counter[Key]()
        kept = []
        for finding in report.findings:
            key = key_of(finding, named(report, finding, self.path.parent))
            if left[key] > 0:
                left[key] -= 1
                taken[key] += 1
            else:
                kept.append(finding)
        self.taken[report.project.root] = taken
        return replace(report, findings=tuple(kept), suppressed=report.suppressed + taken.total())

    def stale(self) -> list[Key]:
        """Entries that list more findings than there are."""
        taken = sum(self.taken.values(), Counter[Key]())
        return sorted(key for key, count in self.known.items() if count > taken[key])

    def notes(self) -> tuple[str, ...]:
        """A message to the user about stale entries."""
        return tuple(
            f"the baseline lists {rule} in {path}{f' at {key}' if key else ''}, which is gone: write it anew"
            for rule, path, key in self.stale()
        )


def named(report: Report, finding: Finding, folder: Path) -> str:
    """A finding's file as a baseline in `folder` names it."""
    if finding.origin is None:
        return ""
    return Path(os.path.relpath(report.project.root / finding.origin.path, folder)).as_posix()


def record(reports: Sequence[Report], path: Path, cwd: Path) -> list[Report]:
    """Writes a baseline of all findings; the reports without them. Raises UsageError."""
    full = real(cwd / path)
    write(full, [key_of(f, named(report, f, full.parent)) for report in reports for f in report.findings])
    return [replace(report, findings=(), suppressed=report.suppressed + len(report.findings)) for report in reports]
