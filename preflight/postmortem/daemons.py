"""Daemons that kill processes, and runtimes that report a kill: Kubernetes, Docker, systemd-oomd, earlyoom, Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.postmortem.evidence import ContainerKilled, DaemonKill, Evidence
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.units import kubernetes, slurm

_REASON = re.compile(
    r"""(?:["']?[Rr]eason["']?:\s*["']?OOMKilled\b|["']?OOMKilled["']?:\s*true\b|\bOOMKilled\b\s+\d+)"""
)
_MEMORY = re.compile(r"""^\s*["']?memory["']?:\s*["']?(\d{1,18}(?:\.\d{1,9})?)([KMGT]i?)?["']?,?\s*$""")
_SECTION = re.compile(r"""^\s*["']?(limits|requests|Limits|Requests)["']?:""")
_OOMD = re.compile(r"systemd-oomd(?:\[\d+\])?:? [Kk]illed (\S+) due to|systemd-oomd killed (\d+) process")
_UNIT = re.compile(r"(\S+): (?:A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill')")
_EARLYOOM = re.compile(
    r"earlyoom(?:\[\d+\])?: sending SIG(?:TERM|KILL) to process (\d+) (?:uid \d+ )?[\"(]([^\")]*)[\")]"
    r".*?(?:VmRSS (\d+) MiB|$)"
)
_EVICTED = re.compile(r"low on resource: memory(?:.*?\bContainer (\S+) was using (\d{1,18}(?:\.\d{1,9})?)([KMGT]i?)?)?")
"""Of a pod that Kubernetes evicts (eviction/helpers.go, nodeLowMessageFmt and containerMessageFmt)."""
_RAY = re.compile(
    r"Memory on the node .*?was ([\d.]+)GB / ([\d.]+)GB \([\d.]+\), which exceeds the memory usage threshold"
)
_RAY_TASK = re.compile(r"name=([^,)]+), pid=\d+, memory used=([\d.]+)GB")


class Daemons(Parser):
    """Reads one log."""

    def __init__(self) -> None:
        self._section = ""
        self._limit: int | None = None
        self._killed: ContainerKilled | None = None

    @property
    def awake(self) -> bool:
        return self._killed is not None or self._section == "limits"

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        """The evidence of a line. `kubectl describe` lists the limits of a container after its last state."""
        text = line.text
        if found := _SECTION.match(text):
            self._section = found[1].lower()
        elif self._section == "limits" and (found := _MEMORY.match(text)):
            self._limit = kubernetes(found[1], found[2] or "")
            if self._killed is not None:
                yield from self.end()
        elif "OOMKilled" in text and _REASON.search(text):
            yield from self.end()
            self._killed = ContainerKilled(line.place, self._limit)
            if self._limit is not None:
                yield from self.end()
        elif "low on resource: memory" in text and (found := _EVICTED.search(text)):
            used = kubernetes(found[2], found[3] or "") if found[2] else None
            yield DaemonKill(line.place, "the kubelet", found[1] or "", used)
        elif "oomd" in text and (found := _OOMD.search(text)):
            yield DaemonKill(line.place, "systemd-oomd", found[1] or "")
        elif "earlyoom" in text and (found := _EARLYOOM.search(text)):
            yield DaemonKill(line.place, "earlyoom", found[2], int(found[3][:9]) * 2**20 if found[3] else None)
        elif "Memory on the node" in text and "exceeds the memory" in text and (found := _RAY.search(text)):
            task = _RAY_TASK.search(text)
            victim, rss = (task[1], _gb(task[2])) if task else ("", None)
            yield DaemonKill(line.place, "Ray's memory monitor", victim, rss, _gb(found[1]), _gb(found[2]))
        elif "node running low on memory" in text and "killed" in text:
            yield DaemonKill(line.place, "Ray's memory monitor")
        elif ("oom-kill'" in text or "OOM killer" in text) and _UNIT.search(text):
            yield ContainerKilled(line.place)

    def end(self) -> Iterator[Evidence]:
        """A kill whose limit did not follow."""
        if self._killed is not None:
            limit = self._killed.limit if self._killed.limit is not None else self._limit
            yield ContainerKilled(self._killed.place, limit)
        self._killed, self._limit, self._section = None, None, ""


def _gb(text: str) -> int | None:
    """Bytes of Ray's "27.71GB": it divides by 2^30 (memory_monitor.cc)."""
    return slurm(f"{text}G")[0]
