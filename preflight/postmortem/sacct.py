"""SLURM's accounting: `sacct` as columns, with -P or -p, or as JSON of several versions; and `seff`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from preflight.postmortem.evidence import Accounting, Evidence, LogPlace
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.units import slurm

_COLUMNS = frozenset({
    "jobid", "jobidraw", "jobname", "partition", "account", "alloccpus", "state", "exitcode", "maxrss", "averss",
    "reqmem", "elapsed", "alloctres", "reqtres", "nnodes", "ntasks", "ncpus", "timelimit", "nodelist", "submitline",
    "workdir", "start", "end", "user", "reqcpus", "allocnodes", "derivedexitcode", "maxvmsize",
})  # fmt: skip
"""Fields of a header of sacct."""

_STATES = (
    "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "FAILED", "CANCELLED", "COMPLETED", "PREEMPTED", "DEADLINE", "BOOT_FAIL",
    "RUNNING", "PENDING", "REQUEUED",
)  # fmt: skip
_JOB = re.compile(r"(\d+)(?:_\[?[\d,\-%]+\]?)?(?:\+\d+)?(?:\.(\S+))?")
_EXIT = re.compile(r"(\d{1,4}):(\d{1,4})")
_MEMORY = re.compile(r"(?:^|,)mem=(\d+(?:\.\d+)?[KMGTP]?)", re.IGNORECASE)
_SEFF = re.compile(r"^\s*#?\s*(Job ID|State|Nodes|Cores per node|Cores|Memory Utilized|Memory Efficiency):\s*(.*\S)")
_PRINTED = re.compile(r"(\d+(?:\.\d+)?) ?([KMGTP])i?B")
LARGEST_JSON = 1 << 26
"""Most characters of JSON that are kept: far more than a job takes."""

Row = Mapping[str, str]


class Sacct(Parser):
    """Reads one log. A header starts a table; rows follow until a line does not look like one."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._spans: list[tuple[int, int | None]] | None = None
        self._header = ""
        self._json: list[str] = []
        self._json_size = self._json_line = 0
        self._json_place: LogPlace | None = None
        self._seff: dict[str, str] = {}
        self._seff_place: LogPlace | None = None

    @property
    def awake(self) -> bool:
        return bool(self._names) or bool(self._seff) or self._json_place is not None

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        if self._json_place is None and line.number == 1 and line.text.lstrip().startswith("{"):
            self._json_place = line.place
        if self._json_place is not None:
            self._json_size += len(line.text)
            if self._json_size <= LARGEST_JSON:
                self._json.append(("" if line.number == self._json_line else "\n") + line.text)
                self._json_line = line.number
            return
        if ":" in line.text and (found := _SEFF.match(line.text)):
            if found[1] == "Job ID":
                yield from self._seff_done()
                self._seff_place = line.place
            if self._seff_place is not None:
                self._seff.setdefault(found[1], found[2])
            return
        if self._starts(line.text):
            return
        if self._names:
            yield from self._row(line)

    def _starts(self, text: str) -> bool:
        """Whether this is the header of a table, or the ruler below one; the next rows belong to it."""
        if self._names and set(text.strip()) <= {"-", " "}:
            self._spans = _spans(text)
            return True
        names = [
            word.split("%")[0].lower() for word in (text.strip().strip("|").split("|") if "|" in text else text.split())
        ]
        names = [name.strip() for name in names]
        if "state" not in names or not {"jobid", "jobidraw"} & set(names) or sum(n in _COLUMNS for n in names) < 3:
            return False
        self._names, self._header = names, text
        self._spans = None
        return True

    def _row(self, line: LogLine) -> Iterator[Evidence]:
        text = line.text
        if "|" in self._header:
            values = text.split("|") if "|" in text else []
        elif self._spans is not None:
            values = [text[start:end].strip() for start, end in self._spans]
        else:
            values = text.split()  # a table whose blanks were squeezed: only complete rows can be told apart
            if len(values) != len(self._names):
                values = []
        row = dict(zip(self._names, (value.strip() for value in values), strict=False))
        made = _accounting(line.place, row)
        if made is None:
            self._names = []
        else:
            yield made

    def end(self) -> Iterator[Evidence]:
        """JSON and seff are complete only here."""
        yield from self._seff_done()
        if self._json_place is not None and self._json:
            place, self._json_place = self._json_place, None
            try:
                data = json.loads("".join(self._json))
            except (ValueError, RecursionError):
                return
            if isinstance(data, dict) and isinstance(data.get("jobs"), list):
                for job in data["jobs"]:
                    if isinstance(job, dict):
                        yield from _of_json(place, job)

    def _seff_done(self) -> Iterator[Evidence]:
        said, place = self._seff, self._seff_place
        self._seff, self._seff_place = {}, None
        job = _JOB.match(said.get("Job ID", ""))
        if job is None or place is None or "State" not in said:
            return
        used, of = (_PRINTED.search(said.get(name, "")) for name in ("Memory Utilized", "Memory Efficiency"))
        nodes = _count(said.get("Nodes", "")) or 1
        cores = _count(said.get("Cores per node", "")) or _count(said.get("Cores", ""))
        yield Accounting(
            place,
            job[1],
            "",
            _state(said["State"]),
            allocated=slurm(f"{of[1]}{of[2]}")[0] if of else None,
            largest_task=slurm(f"{used[1]}{used[2]}")[0] if used else None,
            nodes=nodes,
            cpus=cores * nodes if cores else None,
        )


def _spans(ruler: str) -> list[tuple[int, int | None]]:
    """The columns under a ruler of dashes; the last one is open."""
    spans: list[tuple[int, int | None]] = [(found.start(), found.end()) for found in re.finditer(r"-+", ruler)]
    return spans


def _accounting(place: LogPlace, row: Row) -> Accounting | None:
    """The accounting in a row of a table; None: the line is not a row."""
    job = _JOB.fullmatch(row.get("jobid") or row.get("jobidraw") or "")
    if job is None:
        return None
    state = _state(row.get("state", ""))
    if not state:
        return None
    exit_code, signal = _exit(row.get("exitcode", ""))
    requested, per = slurm(row.get("reqmem", ""))
    memory = _MEMORY.search(row.get("alloctres", "") or row.get("reqtres", ""))
    return Accounting(
        place,
        job[1],
        (job[2] or "").rstrip("+"),
        state,
        exit_code,
        signal,
        requested,
        per,
        slurm(memory[1])[0] if memory else None,
        slurm(row.get("maxrss", ""))[0],
        slurm(row.get("averss", ""))[0],
        _count(row.get("nnodes", "") or row.get("allocnodes", "")),
        _count(row.get("alloccpus", "") or row.get("ncpus", "") or row.get("reqcpus", "")),
        _count(row.get("ntasks", "")),
        row.get("elapsed", ""),
        row.get("timelimit", ""),
        row.get("jobname", ""),
        row.get("submitline", ""),
        row.get("workdir", ""),
    )


def _state(text: str) -> str:
    """The state as SLURM names it: columns cut it ("OUT_OF_ME+"), and CANCELLED says by whom."""
    word = text.split()[0].rstrip("+") if text.split() else ""
    if not word.isupper() or len(word) < 3:
        return ""
    return next((state for state in _STATES if state.startswith(word)), "")


def _exit(text: str) -> tuple[int | None, int | None]:
    found = _EXIT.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else (None, None)


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _of_json(place: LogPlace, job: Mapping[str, object]) -> Iterator[Accounting]:
    """A job of `sacct --json` and its steps. Numbers are plain (21.08) or {set, number} (23.02 and later)."""
    required = _map(job.get("required"))
    per_cpu, per_node = _number(required.get("memory_per_cpu")), _number(required.get("memory_per_node"))
    old = _number(required.get("memory"))
    allocated = _tres(_map(job.get("tres")).get("allocated"))
    name = str(_number(job.get("job_id")) or "")
    if not name:
        return
    requested = per_node or per_cpu or old
    common = {
        "requested": requested * 2**20 if requested else None,
        "allocated": allocated.get("mem", 0) * 2**20 or None,
        "nodes": allocated.get("node") or _number(job.get("allocation_nodes")),
        "cpus": allocated.get("cpu"),
    }
    limit = _map(job.get("time"))
    yield Accounting(
        place,
        name,
        "",
        _json_state(job.get("state")),
        *_json_exit(job.get("exit_code")),
        per="node" if per_node else "cpu" if per_cpu else "",
        elapsed=_seconds(_number(limit.get("elapsed"))),
        time_limit=_seconds((_number(limit.get("limit")) or 0) * 60),
        name=str(job.get("name") or ""),
        submit_line=str(job.get("submit_line") or ""),
        folder=str(job.get("working_directory") or ""),
        **common,
    )
    steps = job.get("steps")
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict):
            yield _json_step(place, name, step, common)


def _json_step(place: LogPlace, job: str, step: Mapping[str, object], common: Mapping[str, int | None]) -> Accounting:
    requested = _map(_map(step.get("tres")).get("requested"))
    who = _map(step.get("step"))
    identity = who.get("id")
    text = identity if isinstance(identity, str) else str(_map(identity).get("step_id") or who.get("name") or "")
    tasks = _number(_map(step.get("tasks")).get("count"))
    return Accounting(
        place,
        job,
        text.rpartition(".")[2],
        _json_state(step.get("state")),
        *_json_exit(step.get("exit_code")),
        largest_task=_tres(requested.get("max")).get("mem"),
        average_task=_tres(requested.get("average")).get("mem"),
        tasks=tasks,
        nodes=_number(_map(step.get("nodes")).get("count")),
        allocated=None,
        requested=common["requested"],
    )


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    """A number of either generation; None where it is not set."""
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set", True) and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _tres(value: object) -> dict[str, int]:
    """Trackable resources by type; memory in the unit that the place uses (MiB for requests, bytes for usage)."""
    rows: Iterable[object] = value if isinstance(value, list) else []
    found: dict[str, int] = {}
    for row in rows:
        count = _number(_map(row).get("count"))
        if count is not None:
            found[str(_map(row).get("type"))] = count
    return found


def _json_state(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = next((one for one in value if isinstance(one, str)), "")
    return _state(value) if isinstance(value, str) else ""


def _json_exit(value: object) -> tuple[int | None, int | None]:
    found = _map(value)
    signal = _map(found.get("signal"))
    number = signal.get("id", signal.get("signal_id"))
    return _number(found.get("return_code")), _number(number)


def _seconds(value: int | None) -> str:
    """A duration as sacct prints it."""
    if not value:
        return ""
    days, rest = divmod(value, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
