"""The kernel's out-of-memory reports since Linux 2.6: in dmesg, syslog, journalctl -k.

A report has several parts: the process that asked, the usage and statistics of the cgroup, a table of tasks,
`oom-kill:constraint=...`, and the line of the killed process, which ends the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from preflight.postmortem.evidence import Evidence, KernelKill, LogPlace, Task, TooManyProcesses
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.units import LARGEST, kib
from preflight.vocabulary.budgets import TASK_ROWS

_INVOKED = re.compile(r"^(?:.*\]\s|.*\bkernel:\s)?\s*(\S.*?) invoked oom-killer")
_USAGE = re.compile(r"\bmemory: usage (\d+)kB, limit (\d+)kB")
_STATISTIC = re.compile(r"(?:^|\s)(anon|shmem) (\d+)\s*$")
_STATISTICS_V1 = re.compile(r"Memory cgroup stats.*?\brss:(\d+)KB\b")
_SHMEM_V1 = re.compile(r"Memory cgroup stats.*?\bshmem:(\d+)KB\b")
_RAM = re.compile(r"\b(\d+) pages RAM\b")
_SWAP = re.compile(r"\b(Free|Total) swap\s*=\s*(\d+)kB")
_TASK = re.compile(r"\[\s*(\d+)\]\s+\d+\s+\d+\s+(\d+)\s+(\d+)\s+(.*?)(\S+)\s*$")
_KILL = re.compile(r"oom-kill:constraint=(\w+)")
_MEMCG = re.compile(r"oom_memcg=([^,\s]+)")
_VICTIM = re.compile(
    r"(?P<kind>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?)?[:.]?\s*"
    r"\bKill(?:ed)? process (?P<pid>\d+)(?:, UID \d+,)? ?[(:]?(?P<name>[^),]*)\)?(?P<rest>.*)"
)
_FIGURE = re.compile(r"\b(total-vm|anon-rss|file-rss|shmem-rss):\s*(\d+)\s*kB")
_FORK = re.compile(r"fork rejected by pids controller in (\S+)")
_JOB = re.compile(r"(?:^|/)job_(\d+)")


class Kernel(Parser):
    """Reads one log. The report is of a node: ranks do not matter."""

    def __init__(self) -> None:
        self._clear()
        self._open: KernelKill | None = None
        self._told: tuple[int | None, ...] | None = None

    def _clear(self) -> None:
        self._asked, self._constraint, self._memcg = "", "", ""
        self._usage: tuple[int | None, int | None] = (None, None)
        self._statistics: dict[str, int] = {}
        self._swap: dict[str, int] = {}
        self._tasks: list[Task] = []
        self._ram_pages: int | None = None

    @property
    def awake(self) -> bool:
        return bool(self._asked) or self._open is not None

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        """The evidence that a line completes."""
        text = line.text
        if "fork rejected" in text and (found := _FORK.search(text)):
            yield TooManyProcesses(line.place, found[1])
        if "invoked oom-killer" in text and (found := _INVOKED.search(text)):
            yield from self.end()
            self._clear()
            self._asked = found[1]
        elif "oom-kill:constraint" in text and (found := _KILL.search(text)):
            self._constraint = found[1]
            memcg = _MEMCG.search(text)
            self._memcg = memcg[1] if memcg else ""
        if "Kill" in text and (found := _VICTIM.search(text)) and (found["kind"] or "total-vm" in found["rest"]):
            yield from self._victim(line.place, found)
        elif self._open is not None and (
            figures := _figures(text)
        ):  # people break the victim's line when they quote it
            self._open = _with(self._open, figures)
            yield from self.end()
        else:
            self._detail(text)

    def _detail(self, text: str) -> None:
        if found := _USAGE.search(text):
            self._usage = kib(found[1]), kib(found[2])
        elif "rss:" in text and (found := _STATISTICS_V1.search(text)):
            self._put(self._statistics, "anon", kib(found[1]))
            shmem = _SHMEM_V1.search(text)
            self._put(self._statistics, "shmem", kib(shmem[1]) if shmem else None)
        elif self._asked and (found := _STATISTIC.search(text)):
            self._put(self._statistics, found[1], int(found[2]) if len(found[2]) < 18 else None)
        elif found := _SWAP.search(text):
            self._put(self._swap, found[1], kib(found[2]))
        elif found := _RAM.search(text):
            self._ram_pages = int(found[1][:15])
        elif self._asked and len(self._tasks) < TASK_ROWS and (found := _TASK.search(text)):
            pid, total, pages = (int(found[i][-15:]) for i in (1, 2, 3))
            self._tasks.append(Task(pid, found[5], pages, total))

    @staticmethod
    def _put(into: dict[str, int], name: str, value: int | None) -> None:
        if value is not None:
            into[name] = value

    def _victim(self, place: LogPlace, found: re.Match[str]) -> Iterator[Evidence]:
        """Older kernels write two lines for a victim: the choice with a score, then the figures."""
        pid = int(found["pid"][-15:])
        figures = _figures(found["rest"])
        if self._open is not None and self._open.pid != pid:
            yield from self.end()
        before = self._open
        kind = found["kind"] or ""
        made = _with(
            KernelKill(
                place=before.place if before else place,
                victim=found["name"].strip() or (before.victim if before else ""),
                pid=pid,
                scope=before.scope if before else self._scope(kind),
                cgroup=self._memcg,
                asked_by=self._asked,
                usage=self._usage[0],
                limit=self._usage[1] if self._usage[1] is not None and self._usage[1] < LARGEST else None,
                anon=self._statistics.get("anon"),
                shmem=self._statistics.get("shmem"),
                swap_free=self._swap.get("Free"),
                swap_total=self._swap.get("Total"),
                ram_pages=self._ram_pages,
                tasks=tuple(self._tasks),
                job=job_of(self._memcg),
            ),
            figures,
        )
        self._open = made
        if figures:
            yield from self.end()

    def _scope(self, kind: str) -> Literal["cgroup", "node", "policy"]:
        # kernel 5.0 release candidates wrote CONSTRAINT_NONE for a cgroup's kill: the victim's line is the one to trust
        if kind.startswith("Memory cgroup") or self._constraint == "CONSTRAINT_MEMCG":
            return "cgroup"
        return "policy" if self._constraint in ("CONSTRAINT_CPUSET", "CONSTRAINT_MEMORY_POLICY") else "node"

    def end(self) -> Iterator[Evidence]:
        """The evidence that the end of the log completes. An `oom_kill` block may kill several: known victims stay."""
        if self._open is not None:
            told = (self._open.pid, self._open.total_vm, self._open.anon_rss)
            self._asked = ""
            if told != self._told:  # node-problem-detector repeats the kernel's line
                yield self._open
            self._told = told
            self._open = None


def _with(kill: KernelKill, figures: Mapping[str, int | None]) -> KernelKill:
    sizes = ("total_vm", "anon_rss", "file_rss", "shmem_rss")
    total_vm, anon, file, shmem = (figures.get(name, getattr(kill, name)) for name in sizes)
    return replace(kill, total_vm=total_vm, anon_rss=anon, file_rss=file, shmem_rss=shmem)


def _figures(text: str) -> dict[str, int | None]:
    """The victim's sizes by the names of KernelKill's fields."""
    return {name.replace("-", "_"): kib(number) for name, number in _FIGURE.findall(text)}


def job_of(cgroup: str) -> str | None:
    """The SLURM job that a cgroup's path names."""
    found = _JOB.search(cgroup)
    return found[1] if found else None


def owner(cgroup: str) -> str:
    """The owner of a cgroup, in words, by its path."""
    job = job_of(cgroup)
    if job is not None:
        return f"SLURM job {job}"
    if "kubepods" in cgroup:
        return "the Kubernetes pod"
    if "docker" in cgroup or "libpod" in cgroup or "containerd" in cgroup:
        return "the container"
    if "user.slice" in cgroup and not cgroup.endswith((".scope", ".service")):
        return "the user's session"
    return f"the control group {cgroup}" if cgroup else "a control group"


def page_bytes(kill: KernelKill) -> int | None:
    """Bytes of a page, 4, 16 or 64 KiB, from the row and the line of the killed process; None: they do not tell."""
    sizes = [kill.anon_rss, kill.file_rss, kill.shmem_rss]
    row = next((task for task in kill.tasks if task.pid == kill.pid and task.total_pages), None)
    if row is None or kill.total_vm is None or None in sizes:
        return None
    return next((page for page in (4096, 16384, 65536) if row.total_pages * page == kill.total_vm), None)
