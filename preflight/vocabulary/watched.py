"""What was seen of a real run: peaks by rank and phase, the host's memory, how it ended. No paths, names or hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from preflight.vocabulary.estimates import Interval

End = Literal["completed", "oom", "killed", "stopped", "failed", "unknown"]
"""oom: GPU memory ran out; killed: host memory did; stopped: somebody sent a signal; failed: another error."""

TIERS = ("requested", "allocated", "reserved", "process")
PHASES = ("load", "forward", "backward", "optimizer", "step", "validation", "generation", "save")
"""Of a recorded process, in the order in which they are shown."""
PLAUSIBLE = (0.3, 3.0)
"""Measured over expected; outside, the job that was read is not the one that ran."""


class WatchedMachine(Struct, frozen=True):
    """What decides the memory of a process beside its job. "" and None: not known."""

    gpu: str = ""
    gpu_memory: int | None = None
    torch: str = ""
    cuda: str = ""
    driver: str = ""
    alloc_conf: str = ""


class WatchedError(Struct, frozen=True):
    """The error that ended a process. `memory`: the kind of `guard.memory_errors`; "": it has another reason.

    `text` stays on this machine: it may name files.
    """

    name: str
    memory: str = ""
    tried: int | None = None
    phase: str = ""
    text: str = ""


class WatchedSave(Struct, frozen=True):
    """A file that a process saved, by which function, and when it began. It stays on this machine: it has a name.

    `ended`: the function came back; without it the file may be torn.
    """

    path: str
    saver: str
    at: float
    ended: bool


class WatchedTrial(Struct, frozen=True):
    """One of several jobs that a process ran after each other. `job`: what the program says of it, not checked."""

    job: Mapping[str, object]
    peaks: Mapping[str, Mapping[str, int]]
    error: WatchedError | None = None


class WatchedRank(Struct, frozen=True):
    """One process that trained. `peaks`: phase -> tier -> bytes; `phase`: the last one that it was in.

    `floor`: bytes that are allocated after the first and the last recorded step, and the steps between them.
    """

    rank: int
    world: int = 1
    pid: int | None = None
    machine: WatchedMachine = WatchedMachine()
    peaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    phase: str = ""
    steps: int = 0
    retries: int = 0
    ooms: int = 0
    handled: int = 0
    """Times that the guard went on after memory ran out."""
    floor: tuple[int, int, int] | None = None
    host: int = 0
    samples: Mapping[str, int] = field(default_factory=dict)
    """Bytes of one decoded sample: `sample_bytes` in training, `validation_sample_bytes`; empty: none was seen."""
    process: int = 0
    """Bytes of this process on the GPU, as nvidia-smi shows them; 0: not known."""
    gpus: int = 1
    """GPUs that the process takes memory of; the peaks are those of the fullest."""
    share: int | None = None
    """Bytes that its allocator may reserve, where a memory fraction limits it."""
    error: WatchedError | None = None
    ended: bool = False
    stopped: str = ""
    """Why the records end before the process does."""
    batches: int = 0
    """That loaders handed out."""
    epoch: int = 0
    """Batches of the longest loader, where it knows."""
    saves: tuple[WatchedSave, ...] = ()
    """The newest files that it saved, in their order."""
    trials: tuple[WatchedTrial, ...] = ()
    """Those that guard.optuna knows the job of."""
    transformers: str = ""
    """The release that the process has; "": none."""

    def peak(self, tier: str) -> int | None:
        """The highest of all phases; None: nothing was recorded."""
        return max((found[tier] for found in self.peaks.values() if tier in found), default=None)


class WatchedHost(Struct, frozen=True):
    """One node, in bytes. `kills`: processes that the kernel killed for memory in the run's control group.

    `workers`: the largest process that is not a rank. `pressure`: the share of the last ten seconds in which all
    processes waited for memory, in per cent. `growth`: bytes by which the others than ranks grow with each batch.
    """

    limit: int | None = None
    before: int | None = None
    peak: int | None = None
    kills: int = 0
    resident: int = 0
    workers: int = 0
    processes: int = 0
    total: int | None = None
    least_available: int | None = None
    used: int | None = None
    """Of the control group, at the last look."""
    rising: bool = False
    pressure: float = 0.0
    growth: int = 0


class WatchedRun(Struct, frozen=True):
    """One start of a command. `status`: its exit status, or minus the signal that ended it."""

    status: int
    seconds: float
    ranks: tuple[WatchedRank, ...] = ()
    host: WatchedHost = WatchedHost()
    asked_to_end: int = 0
    """A signal that somebody sent to the run, and that was passed on."""
    others: tuple[tuple[int, int], ...] = ()
    """Other processes on the GPUs before the start: (pid, bytes)."""

    @property
    def samples(self) -> Mapping[str, int]:
        """The most bytes of one decoded sample of all ranks, by name."""
        found: dict[str, int] = {}
        for rank in self.ranks:
            for name, size in rank.samples.items():
                found[name] = max(found.get(name, 0), size)
        return found

    @property
    def error(self) -> WatchedError | None:
        """The error that came first in time is the cause; errors about memory are told before those that follow."""
        errors = [one.error for one in self.ranks if one.error is not None]
        return next((one for one in errors if one.memory), errors[0] if errors else None)

    @property
    def end(self) -> End:
        """How it ended, by the strongest sign."""
        if self.status == 0:
            return "completed"
        error = self.error
        if error is not None and error.memory in ("allocator", "library", "driver", "nccl"):
            return "oom"
        if self.host.kills or (error is not None and error.memory in ("host", "worker", "shm")):
            return "killed"
        if self.asked_to_end:
            return "stopped"
        if error is None and any(one.ooms and not one.handled for one in self.ranks):
            return "oom"  # the program caught the error and ended itself, as Hydra does
        if self.status == -9 or self.status == 137:
            return "killed" if self.host_was_full else "unknown"
        return "failed"

    @property
    def host_was_full(self) -> bool:
        """Whether the host had nearly nothing left when it was last looked at."""
        host = self.host
        of_group = host.limit is not None and host.peak is not None and host.peak > 0.9 * host.limit
        of_node = (
            host.total is not None and host.least_available is not None and host.least_available < 0.05 * host.total
        )
        return of_group or of_node


class MeasuredPeak(Struct, frozen=True):
    """The most bytes of any rank in one phase, by one tier (of `watched.TIERS`)."""

    tier: str
    phase: str
    bytes: int


class MeasuredRun(Struct, frozen=True):
    """One run. `name`: the beginning of its id; `job` and `machine`: in words; `seconds`: how long it ran.

    `laws`: what the law said of the peak of a tier when the run was recorded, by preflight `version`; empty where it
    said nothing. `host`: bytes by what they are of.
    """

    name: str
    started: str
    outcome: str
    job: str
    machine: str
    steps: int
    seconds: float
    peaks: tuple[MeasuredPeak, ...] = ()
    laws: Mapping[str, Interval] = field(default_factory=dict)
    host: Mapping[str, int] = field(default_factory=dict)
    died: str = ""
    """Where memory ran out, in words."""
    version: str = ""

    def peak(self, tier: str) -> int | None:
        """The highest of all phases."""
        return max((one.bytes for one in self.peaks if one.tier == tier), default=None)
