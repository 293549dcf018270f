"""Messages of SLURM's daemons in a job's log: kills, limits, and why SLURM ended it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.postmortem.evidence import Evidence, JobEnded, Killed, MemoryExceeded, Named, StepKilled
from preflight.postmortem.reading import LogLine, Parser

_EVENTS = re.compile(
    r"Detected (\d+) oom[-_]kill event(?:s|\(s\))? in (?:StepId=|step )(\d+)(?:_\d+)?(?:\.(\w+|\d+))?", re.IGNORECASE
)
_TASK = re.compile(r"srun: error: (\S+): tasks? ([\d,\-]+): (Out Of Memory|Killed)")
_EXCEEDED = re.compile(
    r"\b(StepId=|[Ss]tep |[Jj]ob )(\d+)(?:\.\w+)? exceeded (?:virtual )?memory limit \((\d+) > (\d+)\)"
)
_PLAIN = re.compile(r"[Ee]xceeded (?:job|step) memory limit")
_ENDED = re.compile(
    r"\*\*\* (?:JOB|STEP|StepId=)\s?(\d+)?\S*(?: ON (\S+))? CANCELLED(?: AT (\S+))?"
    r"(?: DUE TO ([A-Z ]+?))?(?: \*\*\*|$|[;,])"
)
_NODE = re.compile(r"(?:srun|salloc): error: Node failure on (\S+)|Job (\d+) cancelled from node failure")
_SUBMITTED = re.compile(r"(?:^|[\s$>+])sbatch\s+((?:-\S+\s+)*)(\S+\.(?:sh|slurm|sbatch|job|bash))\b")
_PYTHON = re.compile(r"\b(?:python[\d.]*|torchrun|accelerate launch|deepspeed)\s+(?:-\S+\s+)*(\S+\.py)\b")
_REASONS = {"TIME LIMIT": "time", "NODE FAILURE": "node-failure", "PREEMPTION": "preempted"}

SMALLEST_BYTES = 1 << 31
"""A limit of this many KiB would be 2 TiB: from here on the figure is bytes (before 18.08 it was KiB)."""
LARGEST_KIB = 1 << 26
"""A limit of fewer bytes would be below 64 MiB, less than an interpreter takes: so it is KiB."""


class Slurm(Parser):
    """Reads one log."""

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        text = line.text
        if "oom" in text and (found := _EVENTS.search(text)):
            yield StepKilled(line.place, found[2], found[3] or "", int(found[1][:9]))
        elif "emory limit" in text:
            yield from self._exceeded(line)
        elif "CANCELLED" in text and (found := _ENDED.search(text)):
            reason = _REASONS.get((found[4] or "").strip(), "cancelled")
            yield JobEnded(line.place, found[1], reason, found[2] or "", found[3] or "")  # type: ignore[arg-type]
        elif "srun: error" in text and (found := _TASK.search(text)):
            if found[3] == "Killed":
                yield Killed(line.place)
            else:
                yield StepKilled(line.place, None)
        elif "ode failure" in text and (found := _NODE.search(text)):
            yield JobEnded(line.place, found[2], "node-failure", found[1] or "")
        elif "sbatch" in text and (found := _SUBMITTED.search(text)):
            yield Named(line.place, found[2])
        if ".py" in text and (found := _PYTHON.search(text)):
            yield Named(line.place, found[1])

    def _exceeded(self, line: LogLine) -> Iterator[Evidence]:
        found = _EXCEEDED.search(line.text)
        if found is None:
            if _PLAIN.search(line.text):
                yield MemoryExceeded(line.place, None)
            return
        used, limit = int(found[3][:18]), int(found[4][:18])
        scale = _scale(found[1], limit)
        yield MemoryExceeded(line.place, found[2], used * scale or None, limit * scale or None)


def _scale(words: str, limit: int) -> int:
    """Bytes per unit of the figures; 0: bytes and KiB are both possible."""
    if words == "StepId=" or limit >= SMALLEST_BYTES:
        return 1
    return 1024 if limit < LARGEST_KIB else 0
