"""All evidence of some logs, in their order. Memory stays bounded: repetitions are counted, not kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from preflight.postmortem.accelerators import Accelerators
from preflight.postmortem.daemons import Daemons
from preflight.postmortem.evidence import Evidence, GpuOom, Progress
from preflight.postmortem.kernel import Kernel
from preflight.postmortem.program import Program
from preflight.postmortem.pytorch import PyTorch
from preflight.postmortem.reading import Line, lines, lines_of
from preflight.postmortem.sacct import Sacct
from preflight.postmortem.slurm import Slurm
from preflight.postmortem.trace import Traces
from preflight.postmortem.trials import Trials, progress
from preflight.records import dataclass

MOST_OF_A_KIND = 2_000
"""Pieces of evidence of one kind that are kept; a loop that catches and retries can fail for ever."""


class Parser(Protocol):
    """One source's reader: a line in, evidence out as soon as it is complete."""

    def feed(self, line: Line) -> Iterator[Evidence]: ...

    def end(self) -> Iterator[Evidence]: ...


@dataclass(frozen=True)
class Found:
    """What the logs hold. `before`: for each piece of evidence, by path and line, the progress seen last before it.

    `last`: for each log how far the run was at its end. Both are sorted by line.
    """

    evidence: tuple[Evidence, ...]
    before: Mapping[tuple[str, int], tuple[Progress, ...]]
    last: Mapping[str, tuple[Progress, ...]]
    files: tuple[str, ...]
    lines: int
    left_out: int = 0


def collect(names: Iterable[str]) -> Found:
    """Reads logs one after the other. Raises UsageError for one that cannot be read."""
    return _collect((name, lines(name)) for name in names)


def collect_text(name: str, text: str) -> Found:
    """Reads a text that is here already."""
    return _collect([(name, lines_of(name, text))])


def _collect(sources: Iterable[tuple[str, Iterator[Line]]]) -> Found:
    kept: list[Evidence] = []
    counts: dict[type, int] = {}
    before: dict[tuple[str, int], tuple[Progress, ...]] = {}
    ends: dict[str, tuple[Progress, ...]] = {}
    files, total, left_out = [], 0, 0
    for name, source in sources:
        files.append(name)
        last: dict[str, Progress] = {}
        for line, found in _read(source):
            if line is not None:
                total += 1
                seen = progress(line)
                if seen is not None:
                    last[seen.phase] = seen
            for one in found:
                counts[type(one)] = counts.get(type(one), 0) + 1
                if counts[type(one)] > MOST_OF_A_KIND:
                    left_out += 1
                    continue
                kept.append(one)
                key = (one.place.path, one.place.line)
                before[key] = _sorted(last)
        ends[name] = _sorted(last)
    return Found(tuple(kept), before, ends, tuple(files), total, left_out)


def _sorted(seen: Mapping[str, Progress]) -> tuple[Progress, ...]:
    return tuple(sorted(seen.values(), key=lambda one: one.place.line))


def _read(source: Iterable[Line]) -> Iterator[tuple[Line | None, list[Evidence]]]:
    """Each line with what it completed, then what the end of the log completed."""
    traces = Traces()
    parsers: tuple[Parser, ...] = (
        Kernel(), Slurm(), Sacct(), PyTorch(traces), Accelerators(traces), Program(traces), Daemons(), Trials(),
    )  # fmt: skip
    for line in source:
        traces.feed(line)
        found = [one for parser in parsers for one in parser.feed(line)]
        if any(isinstance(one, GpuOom) for one in found):
            traces.over(line.stream)
        yield line, found
    yield None, [one for parser in parsers for one in parser.end()]
