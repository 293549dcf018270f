"""Collects the evidence of logs, in their order, in bounded memory: repetitions are counted and not kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from preflight.postmortem.accelerators import Accelerators
from preflight.postmortem.daemons import Daemons
from preflight.postmortem.evidence import Evidence, GpuOom, LoggedProgress, LogPlace
from preflight.postmortem.kernel import Kernel
from preflight.postmortem.program import Program
from preflight.postmortem.pytorch import PyTorch
from preflight.postmortem.reading import LogBlock, LogLine, Parser, blocks, blocks_of
from preflight.postmortem.sacct import Sacct
from preflight.postmortem.slurm import Slurm
from preflight.postmortem.trace import Traces
from preflight.postmortem.trials import Trials, progress
from preflight.vocabulary.budgets import PIECES_OF_EVIDENCE

E = TypeVar("E")


class CollectedEvidence(Struct, frozen=True):
    """The evidence of the logs.

    `before`: by path and line of a piece of evidence, the progress before it; `last`: by log, the progress at its end.
    Progress is sorted by line.
    """

    evidence: tuple[Evidence, ...]
    before: Mapping[tuple[str, int], tuple[LoggedProgress, ...]]
    last: Mapping[str, tuple[LoggedProgress, ...]]
    files: tuple[str, ...]
    lines: int
    left_out: int = 0
    raised: tuple[LogPlace, ...] = ()
    """The last exception that each log shows."""

    def of(self, kind: type[E]) -> list[E]:
        """The evidence of one kind, in the order of the logs."""
        return [one for one in self.evidence if isinstance(one, kind)]


SIGNS = tuple(
    sign.encode()
    for sign in (
        "oom", "OOM", "ut of memory", "ried to allocate", "exceed allowed memory", "Kill", "kill", "fork rejected",
        "emory limit", "CANCELLED", "srun: error", "ode failure", "sbatch ", "JobID", "Job ID", "CUBLAS_STATUS",
        "CUDNN_STATUS", "cuDNN algorithm", "find an engine", "RESOURCE_EXHAUSTED", "ResourceExhausted",
        "CUDA_ERROR_OUT", "cuda runtime error", "DataLoader worker", "torch_", "bus error", "shared memory",
        "CPUAllocator", "Unable to allocate", "new thread", "temporarily unavailable", "pthread_create",
        "Thread creation", "Cannot allocate", "MemoryError", "bad_alloc", "exitcode", "code 137", "code: 137",
        "Code:    137", "\n137", "=137", "exit 137", "= 137", "status 137", "status: 137", "code -9", "status -9",
        "code = -9", "imits",
        "failed with parameters", "Too many open", "low on resource",
        "tarting run", "tarting Run", "[HYDRA]", "Traceback (most",
    )
)  # fmt: skip
"""Any evidence contains one of these. To search a block for them is ten times as fast as to parse each line."""


def collect(names: Iterable[str]) -> CollectedEvidence:
    """The evidence of logs. Raises UsageError for a log that cannot be read."""
    return _collect((name, blocks(name)) for name in names)


def collect_text(name: str, text: str) -> CollectedEvidence:
    """The evidence of a text in memory."""
    return _collect([(name, blocks_of(name, text))])


def _collect(sources: Iterable[tuple[str, Iterator[LogBlock]]]) -> CollectedEvidence:
    kept: list[Evidence] = []
    counts: dict[type, int] = {}
    before: dict[tuple[str, int], tuple[LoggedProgress, ...]] = {}
    ends: dict[str, tuple[LoggedProgress, ...]] = {}
    raised: list[LogPlace] = []
    files, total, left_out = [], 0, 0
    for name, source in sources:
        files.append(name)
        reader = LogReader()
        for block in source:
            total += block.data.count(b"\n")
            found = reader.read(block)
            if block.edge and block.data and not block.data.endswith(b"\n"):
                total += 1
            for one, seen in found:
                counts[type(one)] = counts.get(type(one), 0) + 1
                if counts[type(one)] > PIECES_OF_EVIDENCE:
                    left_out += 1
                    continue
                kept.append(one)
                before[one.place.path, one.place.line] = seen
        for one, seen in reader.end():
            kept.append(one)
            before[one.place.path, one.place.line] = seen
        ends[name] = _sorted(reader.progress)
        raised += [reader.error] if reader.error is not None else []
    return CollectedEvidence(tuple(kept), before, ends, tuple(files), total, left_out, tuple(raised))


class LogReader:
    """Reads one log. Skips blocks without a sign of evidence, unless a parser is in the middle of a message."""

    def __init__(self) -> None:
        self.progress: dict[str, LoggedProgress] = {}
        self._traces = Traces()
        self._passed: LogBlock | None = None
        self._parsers: tuple[Parser, ...] = (
            Kernel(),
            Slurm(),
            Sacct(),
            PyTorch(self._traces),
            Accelerators(self._traces),
            Program(self._traces),
            Daemons(),
            Trials(),
        )

    @property
    def error(self) -> LogPlace | None:
        """The last exception that was shown."""
        return self._traces.error

    def read(self, block: LogBlock) -> list[tuple[Evidence, tuple[LoggedProgress, ...]]]:
        """The evidence that a block completes, each piece with the progress before it."""
        awake = self._traces.awake or any(parser.awake for parser in self._parsers)
        if not block.edge and not awake and not any(sign in block.data for sign in SIGNS):
            self._passed = block
            return []
        if self._passed is not None:
            for line in self._passed.tail():
                self._follow(line)
            self._passed = None
        return [found for line in block.lines() for found in self._line(line)]

    def _follow(self, line: LogLine) -> None:
        seen = progress(line)
        if seen is not None:
            self.progress[seen.phase] = seen

    def _line(self, line: LogLine) -> list[tuple[Evidence, tuple[LoggedProgress, ...]]]:
        self._traces.feed(line)
        found = [one for parser in self._parsers for one in parser.feed(line)]
        if any(isinstance(one, GpuOom) for one in found):
            self._traces.over(line.stream)
        self._follow(line)
        return [(one, _sorted(self.progress)) for one in found]

    def end(self) -> list[tuple[Evidence, tuple[LoggedProgress, ...]]]:
        """The evidence that the end of the log completes."""
        return [(one, _sorted(self.progress)) for parser in self._parsers for one in parser.end()]


def _sorted(seen: Mapping[str, LoggedProgress]) -> tuple[LoggedProgress, ...]:
    return tuple(sorted(seen.values(), key=lambda one: one.place.line))
