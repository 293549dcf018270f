"""A dry run that was kept: what was run, what it holds for, and its tape, as a file of plain data.

Such a file may be damaged, or a stranger's. Nothing in it is executed. `read` checks every part of it and bounds its
size; what it says of the program is then worth what its keys are worth, which `engine.dry_runs` compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device import recorded
from preflight.memory.device.recorded import Recording
from preflight.memory.device.recorded_law import REACH, OverLength, RecordedLaw
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import ALL_PARTS, DeviceEstimate, Holder, StepMoment
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Assumption, Standing

FORMAT = "preflight dry run"
VERSION = 2
"""Rises when the form of the file or the meaning of a tape changes. A file of another version is not read."""
BYTES = 32 * 2**20
"""The largest file that is read."""
EVENTS = 2_000_000
_STORAGE = 1 << 46
"""Bytes of one storage that are taken for an error: no computer has so much."""
_SIZE = 1 << 40
"""The same of a batch, a length, a number of ranks."""
_TEXTS, _TEXT = 5000, 4096
_NAMED = 4000
"""The most births whose line is kept, the largest first."""
FACTS = (
    "train.batch_size", "train.seq_len", "train.grad_accum", "train.precision", "train.optimizer",
    "train.optimizer_impl", "train.compile", "train.cudnn_benchmark", "train.allocator.expandable_segments",
    "train.allocator.max_split_size_mb", "validation.batch_size", "data.workers", "data.sample_bytes",
    "model.parameters", "parallel.strategy", "parallel.nodes", "parallel.ranks_per_node", "software",
)  # fmt: skip
"""Job fields that a dry run can see."""
OF_THE_MACHINE = ("machine.gpu", "machine.gpu_memory", "machine.context", "train.allocator.per_process_fraction")
"""Fields of the job in question that its estimate takes over."""


class NotSaved(Exception):
    """A file that is no saved dry run of this version; the message says why."""


class SavedProgram(Struct, frozen=True):
    """What the command started. `target`: relative to the directory; a dotted name where `module`."""

    target: str
    module: bool
    arguments: tuple[str, ...]
    nodes: int = 1
    ranks_per_node: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


class SavedRun(Struct, frozen=True):
    """A dry run, and what it holds for: command, versions, and sources (path relative to `directory` -> SHA-256)."""

    command: tuple[str, ...]
    directory: str
    program: SavedProgram
    sources: Mapping[str, str]
    versions: Mapping[str, str]
    values: Mapping[str, object]
    """The Job fields that it saw."""
    tape: Recording
    law: RecordedLaw | None = None
    no_law: str = ""
    whole: bool = True
    doubts: tuple[Assumption, ...] = ()
    stated: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    """Of the GPU that the program was shown."""

    @property
    def batch(self) -> int | None:
        return _number(self.values.get("train.batch_size"))

    @property
    def length(self) -> int | None:
        return _number(self.values.get("train.seq_len"))

    def why_not(self, job: Job) -> str:
        """Why the run does not speak of a job of its command; "" where it does."""
        batch, length = job.train.batch_size, job.train.seq_len
        if (job.parallel.trials_per_gpu or 1) > 1:
            return "it is of one process on a GPU, and several share one"
        other_batch = batch is not None and batch != self.batch
        other_length = length is not None and self.length is not None and length != self.length
        if not other_batch and not other_length:
            return ""
        if self.law is None or self.batch is None:
            seen = "no batch of a known size" if self.batch is None else f"batch {self.batch:,}"
            seen += f" of length {self.length:,}" if self.length is not None else ""
            return f"it saw {seen}, and has no law over others" + (f": {self.no_law}" if self.no_law else "")
        return self.law.why_not(batch or self.batch, length if other_length else None)

    def recording(self, job: Job) -> Recording:
        """The tape at the batch and length of a job of which the run speaks."""
        if self.law is None or self.batch is None:
            return self.tape
        return self.law.at(job.train.batch_size or self.batch, job.train.seq_len)

    def job(self, asked: Job) -> Job:
        """What the replay needs to know: the fields that were seen, on the machine of the job in question."""
        own = {name: value for name in OF_THE_MACHINE if (value := asked.get(name)) is not None}
        return with_fields(build(dict(self.values)), own)

    def doubts_on(self, gpu: Gpu | None) -> tuple[Assumption, ...]:
        """What is assumed of a run on a GPU."""
        if gpu is None or self.capability is None:
            return self.doubts
        if (gpu.compute_capability >= (8, 0)) == (self.capability >= (8, 0)):
            return self.doubts
        why = "the dry run was shown a GPU of another generation, where other kernels run (--gpu NAME)"
        return (*self.doubts, Assumption("machine.gpu", gpu.name, Standing.assumed, why))

    def estimate(self, asked: Job, gpu: Gpu | None) -> DeviceEstimate:
        """The estimate of a job of which the run speaks."""
        job = self.job(asked)
        found = recorded.judged(recorded.estimate(self.recording(asked), job, gpu), self.whole, self.doubts_on(gpu))
        law = self.law
        if law is None or gpu is None or not self.whole:
            return found
        return replace(found, find_largest_batch=lambda: law.largest(job, gpu, asked.train.seq_len))

    def timeline(self, asked: Job, gpu: Gpu | None) -> tuple[StepMoment, ...]:
        """The run at the sizes of a job, moment by moment; nothing for a job of which it does not speak."""
        return () if self.why_not(asked) else recorded.timeline(self.recording(asked), self.job(asked), gpu)

    def holders(self, asked: Job) -> tuple[Holder, ...]:
        """The lines of the user that hold the most at the peak of a job; none for one of which it does not speak."""
        if self.why_not(asked):
            return ()
        found = self.recording(asked)
        return recorded.holders(found, recorded.peak(found.events).alive, found.lines)

    def bound(self, asked: Job, gpu: Gpu | None) -> tuple[int, int]:
        """(expected, high) bytes from above."""
        return recorded.bound(self.recording(asked), self.job(asked), gpu)


# --- as plain data ----------------------------------------------------------------------------------------------------


def plain(run: SavedRun) -> dict[str, object]:
    """The content of the file."""
    program, tape = run.program, run.tape
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": list(run.command),
        "directory": run.directory,
        "program": {
            "target": program.target, "module": program.module, "arguments": list(program.arguments),
            "nodes": program.nodes, "ranks_per_node": program.ranks_per_node,
            "environment": dict(program.environment),
        },
        "sources": dict(sorted(run.sources.items())),
        "versions": dict(run.versions),
        "capability": list(run.capability) if run.capability is not None else None,
        "values": dict(run.values),
        "whole": run.whole,
        "doubts": [{"field": one.field, "standing": one.standing.value, "why": one.why} for one in run.doubts],
        "assumptions": list(run.stated),
        "tape": {
            "events": list(tape.events),
            "phases": [[name, len(list(several))] for name, several in groupby(tape.phases)],
            "parts": {str(birth): part for birth, part in tape.parts.items()},
            "workspaces": sorted(tape.workspaces),
            "where": [[number, name] for name, number in _first_places(tape)],
            "lines": _lines_at_peaks(run),
            "convolutional": tape.convolutional,
        },
        "law": None if run.law is None else _law_as_data(run.law),
        "no_law": run.no_law or None,
    }  # fmt: skip


def _first_places(tape: Recording) -> list[tuple[str, int]]:
    """The places of the largest moment and of the largest storage: no other is named by a report."""
    births = [at for at, event in enumerate(tape.events) if event >= 0]
    wanted = {recorded.peak(tape.events).at, *([max(births, key=tape.events.__getitem__)] if births else [])}
    return [(name, at) for at in sorted(wanted) if at < len(tape.events) and (name := tape.where.get(at))]


def _lines_at_peaks(run: SavedRun) -> list[list[object]]:
    """The user's lines, each with the births of it that are alive at the peak: at the run's own sizes, and where it has
    a law, at the smallest and the largest batch that this law is for."""
    tape, law = run.tape, run.law
    tapes = [tape]
    if law is not None:
        tapes += [law.at(1), law.at(REACH * max(batch for batch, _ in law.runs))]
    alive = {at: tape.events[at] for one in tapes for at in recorded.peak(one.events).alive}
    found: dict[str, list[int]] = {}
    for at in sorted(sorted(alive, key=lambda at: -alive[at])[:_NAMED]):
        if line := tape.lines.get(at):
            found.setdefault(line, []).append(at)
    return [[line, births] for line, births in found.items()]


def _law_as_data(law: RecordedLaw) -> dict[str, object]:
    over = law.lengths
    return {
        "batch": law.batch,
        "other_batch": law.other,
        "sizes": list(law.sizes),
        "runs": [list(one) for one in law.runs],
        "second_step": law.second_step,
        "lengths": None if over is None else {
            "own": over.own, "other": over.other, "sizes": list(over.sizes), "both": list(over.both),
        },
    }  # fmt: skip


# --- and back ---------------------------------------------------------------------------------------------------------


def read(data: bytes) -> SavedRun:
    """The run of a file. Raises NotSaved with the reason."""
    if len(data) > BYTES:
        raise NotSaved(f"it is larger than {BYTES >> 20} MiB")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotSaved("it is no JSON") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise NotSaved("it is no saved dry run")
    if raw.get("version") != VERSION:
        raise NotSaved(f"it has version {str(raw.get('version'))[:20]}, and this preflight reads {VERSION}")
    try:
        return _run(raw)
    except (AttributeError, KeyError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise NotSaved(f"it is damaged ({type(error).__name__})") from error


def _run(raw: Mapping[str, Any]) -> SavedRun:
    tape = _tape(raw["tape"])
    capability = raw["capability"]
    values = {_text(name): value for name, value in _dictionary(raw["values"]).items()}
    if not values.keys() <= {*FACTS}:
        raise ValueError("values")
    build(values)  # raises ValueError for what a field does not take
    return SavedRun(
        command=_texts(raw["command"]),
        directory=_text(raw["directory"]),
        program=_program(raw["program"]),
        sources=_mapping(raw["sources"]),
        versions=_mapping(raw["versions"]),
        values=values,
        tape=tape,
        law=None if raw["law"] is None else _law(raw["law"], tape),
        no_law=_text(raw["no_law"] or ""),
        whole=raw["whole"] is True,
        doubts=tuple(_doubt(one) for one in _list(raw["doubts"])),
        stated=_texts(raw["assumptions"]),
        capability=None if capability is None else (_count(capability[0], 0), _count(capability[1], 0)),
    )


def _doubt(raw: Mapping[str, Any]) -> Assumption:
    return Assumption(_text(raw["field"]), None, Standing(raw["standing"]), _text(raw["why"]))


def _program(raw: Mapping[str, Any]) -> SavedProgram:
    return SavedProgram(
        _text(raw["target"]), raw["module"] is True, _texts(raw["arguments"]), _count(raw["nodes"]),
        _count(raw["ranks_per_node"]), _mapping(raw["environment"]),
    )  # fmt: skip


def _tape(raw: Mapping[str, Any]) -> Recording:
    events = tuple(_events(_list(raw["events"], EVENTS)))
    phases = list(_phases(_list(raw["phases"], EVENTS), len(events)))
    parts = {_birth(int(at), events): str(part) for at, part in _dictionary(raw["parts"]).items()}
    if not {*parts.values()} <= {*ALL_PARTS}:
        raise ValueError("parts")
    return Recording(
        events=events,
        phases=phases,
        parts=parts,
        workspaces=frozenset(_birth(one, events) for one in _list(raw["workspaces"], EVENTS)),
        where={_count(at, 0): _text(name) for at, name in _list(raw["where"])},
        lines={_birth(at, events): _text(name) for name, births in _list(raw.get("lines", [])) for at in _list(births)},
        convolutional=raw["convolutional"] is True,
    )


def _law(raw: Mapping[str, Any], tape: Recording) -> RecordedLaw:
    over = raw["lengths"]
    runs = tuple((_count(batch), None if length is None else _count(length)) for batch, length in _list(raw["runs"]))
    found = RecordedLaw(
        tape=tape,
        batch=_count(raw["batch"]),
        other=_count(raw["other_batch"]),
        sizes=_sizes(raw["sizes"], tape),
        lengths=None if over is None else OverLength(
            _count(over["own"]), _count(over["other"]), _sizes(over["sizes"], tape), _sizes(over["both"], tape)
        ),
        runs=runs,
        second_step=raw["second_step"] is True,
    )  # fmt: skip
    lengths = found.lengths
    if found.batch == found.other or (lengths is not None and lengths.own == lengths.other):
        raise ValueError("a law of one size")
    if not runs or (lengths is not None and not any(length is not None for _, length in runs)):
        raise ValueError("runs")
    return found


def _sizes(raw: Any, tape: Recording) -> tuple[int, ...]:
    found = tuple(_count(one, 0, _STORAGE) for one in _list(raw, EVENTS))
    if len(found) != len(tape.events):
        raise ValueError("sizes")
    return found


def _events(raw: Sequence[Any]) -> Iterator[int]:
    """Births and deaths: a storage dies once, after its birth."""
    alive: set[int] = set()
    for at, one in enumerate(raw):
        if type(one) is not int or one > _STORAGE:
            raise ValueError("events")
        if one >= 0:
            alive.add(at)
        else:
            alive.remove(-1 - one)
        yield one


def _phases(raw: Sequence[Any], events: int) -> Iterator[str]:
    left = events
    for name, count in raw:
        left -= _count(count)
        if left < 0:
            raise ValueError("phases")
        yield from [_text(name)] * count
    if left or not events:
        raise ValueError("phases")


def _birth(at: Any, events: Sequence[int]) -> int:
    if events[_count(at, 0)] < 0:
        raise ValueError("no birth")
    return int(at)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: Any, least: int = 1, most: int = _SIZE) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError("number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT:
        raise ValueError("text")
    return value


def _list(value: Any, most: int = _TEXTS) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("list")
    return value


def _dictionary(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > EVENTS:
        raise ValueError("mapping")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _mapping(value: Any) -> dict[str, str]:
    found = _dictionary(value)
    return {_text(name): _text(one) for name, one in _checked(found.items())}


def _checked(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    found = list(items)
    if len(found) > _TEXTS:
        raise ValueError("mapping")
    return found
