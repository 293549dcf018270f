"""The report of the process, checked: a program could have written anything into it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from preflight.dryrun.process import NoAnswer
from preflight.memory.device import recorded
from preflight.memory.device.recorded import Recording
from preflight.vocabulary.estimates import ALL_PARTS, Holder

End = Literal["finished", "ended", "exited", "failed", "stopped", "refused"]
ENDS: tuple[End, ...] = ("finished", "ended", "exited", "failed", "stopped", "refused")
PHASES = ("load", "forward", "backward", "optimizer", "validation", "save")
_LARGEST = 1 << 46
"""Bytes of one storage that are taken for an error: no computer has so much."""


class Place(Struct, frozen=True):
    """Where the program was: module, line of a library, line of the user's file ("file:line")."""

    phase: str
    module: str
    library: str
    user: str


class RunReport(Struct, frozen=True):
    """What a dry run saw."""

    end: End
    reason: str
    place: str
    steps: tuple[int, ...]
    backwards: tuple[int, ...]
    trained: bool
    validated: bool
    events: tuple[int, ...]
    places: tuple[Place, ...]
    """The place of each event."""
    kinds: Mapping[int, str]
    shapes: Mapping[int, str]
    assumptions: tuple[tuple[str, str], ...]
    marks: tuple[tuple[int, str], ...]
    facts: Mapping[str, Any]
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    refused: tuple[str, ...]
    allocator: str = ""
    convolutions: bool = False
    benchmark: bool = False
    seconds: float = 0.0
    gpus: int = 1
    """GPUs that the program puts tensors on. What happened is told of the one that takes the most."""

    @property
    def whole_steps(self) -> int:
        """Optimizer steps of the optimizer that made the most."""
        return max(self.steps, default=0)


def read(raw: Mapping[str, Any]) -> RunReport:
    """The report of a process. Raises NoAnswer where it is malformed."""
    try:
        return _read(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise NoAnswer(f"the report of the process is damaged ({type(error).__name__}: {error})") from error


def _read(raw: Mapping[str, Any]) -> RunReport:
    end = str(raw["end"])
    if end not in ENDS:
        raise ValueError(end)
    events = tuple(_events(raw.get("sizes", ())))
    known = [Place(*(str(one) for one in place)) for place in raw.get("places", ())]
    places = tuple(known[number] for number in _indices(raw.get("at", ()), len(known)))
    if len(places) != len(events):
        raise ValueError("events without a place")
    whole = RunReport(
        end=next(one for one in ENDS if one == end),
        reason=str(raw.get("reason", "")),
        place=str(raw.get("place", "")),
        steps=tuple(int(one) for one in raw.get("steps", ())),
        backwards=tuple(int(one) for one in raw.get("backwards", ())),
        trained=raw.get("trained") is True,
        validated=raw.get("validated") is True,
        events=events,
        places=places,
        kinds={int(number): str(kind) for number, kind in raw.get("kinds", {}).items()},
        shapes={int(number): str(shape) for number, shape in raw.get("shapes", {}).items()},
        assumptions=tuple((str(text), str(name)) for text, name in raw.get("assumptions", ())),
        marks=tuple((int(at), str(name)) for at, name in raw.get("marks", ())),
        facts=dict(raw.get("facts", {})),
        versions=_texts(raw.get("versions", {})),
        sources=_texts(raw.get("sources", {})),
        refused=tuple(str(one) for one in raw.get("refused", ())),
        allocator=str(raw.get("allocator", "")),
        convolutions=raw.get("convolutions") is True,
        benchmark=raw.get("benchmark") is True,
        seconds=float(raw.get("seconds", 0.0)),
    )
    return _of_fullest_gpu(whole, {int(number): int(gpu) for number, gpu in raw.get("devices", {}).items()})


def _of_fullest_gpu(whole: RunReport, others: Mapping[int, int]) -> RunReport:
    """What happened on the GPU that takes the most. `others`: the GPUs of births that are not on the first."""
    used = sorted({others.get(at, 0) for at, event in enumerate(whole.events) if event >= 0})
    if not any(used):
        return whole
    parts = {gpu: _of_gpu(whole, others, gpu) for gpu in used}
    fullest = max(parts, key=lambda gpu: recorded.peak(parts[gpu].events).bytes)
    found = parts[fullest]
    if len(used) == 1:
        return found
    words = f"the program uses GPUs {', '.join(map(str, used))}: GPU {fullest}, which takes the most, was judged"
    return replace(found, assumptions=(*found.assumptions, (words, "")), gpus=len(used))


def _of_gpu(whole: RunReport, others: Mapping[int, int], gpu: int) -> RunReport:
    kept: list[int] = []
    events: list[int] = []
    births: dict[int, int] = {}
    for at, event in enumerate(whole.events):
        birth = at if event >= 0 else -1 - event
        if others.get(birth, 0) == gpu:
            births.setdefault(birth, len(events))
            events.append(event if event >= 0 else -1 - births[birth])
            kept.append(at)
    return replace(
        whole,
        events=tuple(events),
        places=tuple(whole.places[at] for at in kept),
        kinds={births[at]: kind for at, kind in whole.kinds.items() if at in births},
        shapes={births[at]: shape for at, shape in whole.shapes.items() if at in births},
        marks=tuple((bisect_left(kept, at), name) for at, name in whole.marks),
    )


def _texts(raw: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in raw.items()}


def _indices(raw: Iterable[Any], most: int) -> Iterable[int]:
    for one in raw:
        if not isinstance(one, int) or not 0 <= one < most:
            raise ValueError(one)
        yield one


def _events(raw: Iterable[Any]) -> Iterable[int]:
    """Births and deaths: a storage dies once, after its birth."""
    alive: set[int] = set()
    for at, one in enumerate(raw):
        if not isinstance(one, int) or one > _LARGEST:
            raise ValueError(one)
        if one >= 0:
            alive.add(at)
        else:
            alive.remove(-1 - one)
        yield one


def recording(report: RunReport, directory: str) -> Recording:
    """The allocations of the run, with the part of each."""
    workspaces = frozenset(number for number, kind in report.kinds.items() if kind == "workspace")
    return Recording(
        events=report.events,
        phases=[place.phase if place.phase in PHASES else "load" for place in report.places],
        parts=_parts(report),
        workspaces=workspaces,
        where=_Names(report, lambda place: place.module or _short(place.user or place.library, directory)),
        shapes=report.shapes,
        lines=_Names(report, lambda place: _short(place.user, directory)),
        convolutional=report.convolutions,
    )


def _parts(report: RunReport) -> dict[int, str]:
    """The part of each birth: what the program said that it is; else an activation if backward is where it ends."""
    parts = {number: kind for number, kind in report.kinds.items() if kind in ALL_PARTS}
    for at, event in enumerate(report.events):
        birth = -1 - event
        if event >= 0 or birth in parts or report.places[birth].phase != "forward":
            continue
        if report.places[at].phase == "backward":
            parts[birth] = "activations"
    return parts


class _Names(Mapping[int, str]):
    """A name of each birth's place."""

    def __init__(self, report: RunReport, name: Callable[[Place], str]) -> None:
        self.report = report
        self.name = name

    def __getitem__(self, at: int) -> str:
        return self.name(self.report.places[at])

    def __iter__(self) -> Any:
        return iter(range(len(self.report.places)))

    def __len__(self) -> int:
        return len(self.report.places)


class Holders(Struct, frozen=True):
    """What is alive at the peak, by the user's lines and by modules, the largest first."""

    lines: tuple[Holder, ...] = ()
    modules: tuple[Holder, ...] = ()


def holders(report: RunReport, directory: str) -> Holders:
    """The largest at the peak of requested bytes."""
    whole = recording(report, directory)
    alive = recorded.peak(report.events).alive
    modules = _Names(report, lambda place: place.module)
    via = _Names(report, lambda place: _short(place.library, directory))
    return Holders(recorded.holders(whole, alive, whole.lines, via), recorded.holders(whole, alive, modules, via))


def _short(place: str, directory: str) -> str:
    """A line without the directory in which the command was started, or the folder of packages."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in place:
            return place.rpartition(folder)[2]
    return place.removeprefix(directory.rstrip("/") + "/")
