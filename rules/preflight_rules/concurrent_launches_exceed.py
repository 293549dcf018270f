from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from preflight.api import (
    Assumption,
    Case,
    DeviceEstimate,
    Example,
    Finding,
    HostEstimate,
    Interval,
    Origin,
    Proposal,
    Rule,
    Safety,
    Severity,
    Unknown,
    assumed,
    evaluate,
    gib,
    severity_of,
)
from preflight_rules.shared.programs import ON_CLUSTER, job_files
from preflight_rules.shared.slurm import memory_change, node_limit


def script(*commands: str, memory: str = "60G") -> str:
    """A job script that starts several commands."""
    head = ["#!/bin/bash", "#SBATCH --gres=gpu:a100:4", "#SBATCH --cpus-per-task=32", f"#SBATCH --mem={memory}", ""]
    return "\n".join([*head, *commands, ""])


FOUR = [f"CUDA_VISIBLE_DEVICES={gpu} python train.py --batch_size 64 --workers 4 &" for gpu in range(4)]
DEVICES = "CUDA_VISIBLE_DEVICES"
SHOWN = 4
"""The most needs that a message lists one by one."""


class ConcurrentLaunchesExceed(Rule):
    """Commands that a script starts with `&` run at the same time and together need too much memory.

    Each launch alone may fit. All processes of a job on a node share the host memory, and all processes that see a GPU
    share its memory: without `CUDA_VISIBLE_DEVICES` every process takes the first GPU.

    Each launch works when it is tried alone, and chance decides which of them is killed.

    If a part of the sum rests on a value that is not known well, or is larger than any GPU, it is a warning that names
    the value.

    If the limit is the SLURM request, the fix raises it to the need of all launches together. The runs stay the same.
    """

    name = "concurrent-launches-exceed"
    summary = "Launches that run at the same time need more than a node or a GPU has"
    tags = ("gpu-memory", "host-memory", "slurm")
    examples = (
        Example(
            "Four runs side by side, each of which fits alone",
            job_files(script(*FOUR, "wait")),
            fixed={"train.sbatch": script(*FOUR, "wait", memory="72G")},
            says=("4 launches run at the same time", "the job may use 60 GiB"),
            options=ON_CLUSTER,
        ),
        Example(
            "The same runs one after the other",
            job_files(script(*[line.removesuffix(" &") for line in FOUR])),
            finds=0,
            options=ON_CLUSTER,
        ),
        Example("Enough for all four", job_files(script(*FOUR, "wait", memory="128G")), finds=0, options=ON_CLUSTER),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        if not case.beside or case.index > min(other.index for other in case.beside):
            return
        together = (case, *case.beside)
        request = case.study.request
        if request is None or request.nodes in (None, 1):  # steps of a larger job may have nodes of their own
            yield from self._host(case, together)
        sharing: dict[str, list[Case]] = {}
        for one in together:
            device = gpu_of(one)
            if device is not None:
                sharing.setdefault(device, []).append(one)
        for device, cases in sharing.items():
            yield from self._device(device, cases)

    def _host(self, case: Case, together: Sequence[Case]) -> Iterator[Finding]:
        known = [host for host in (one.estimates.host for one in together) if host is not None]
        limit = next((host.limit for host in known if host.limit is not None), None)
        needs = [host.per_node for host in known]
        need = total(needs)
        if severity_of(need, limit) is None or limit is None or len(known) < 2:
            return
        origin, related = places(together)
        yield self.finding(
            f"{len(known)} launches run at the same time and need {each(needs)} = {gib(need.expected)} of host "
            f"memory together ({gib(need.low)} to {gib(need.high)}), and the job may use {gib(limit)}"
            f"{if_known(known)}",
            origin,
            severity_with(known),
            settings=("machine.memory_limit",),
            related=related,
            label="runs at the same time as the others",
            interval=need,
            capacity=limit,
            side="host",
            proposals=tuple(self._raise(case, need, limit)) if known[0].limited_by == "memory_limit" else (),
        )

    def _raise(self, case: Case, need: Interval, limit: int) -> Iterator[Proposal]:
        change = memory_change(case, need.high)
        if change is not None and change[1] >= need.high:
            known = node_limit(case) is not None
            reason = "" if known else "the memory of the nodes is unknown"
            title = f"memory per node {gib(limit)} -> {gib(change[1])}"
            yield Proposal(title, (change[0],), Safety.safe if known else Safety.unsafe, reason)

    def _device(self, device: str, cases: Sequence[Case]) -> Iterator[Finding]:
        known = [found for found in (one.estimates.device for one in cases) if found is not None]
        capacity = next((found.capacity for found in known if found.capacity is not None), None)
        needs = [found.process for found in known]
        need = total(needs)
        if severity_of(need, capacity) is None or capacity is None or len(known) < 2:
            return
        origin, related = places(cases)
        said = any(DEVICES in one.study.launch.environment for one in cases)
        yield self.finding(
            f"{len(known)} launches share one GPU ({f'{DEVICES}={device}' if said else f'{DEVICES} is not set'}) "
            f"and need {each(needs)} = {gib(need.expected)} together ({gib(need.low)} to {gib(need.high)}) of the "
            f"{gib(capacity)} that it gives{if_known(known)}",
            origin,
            severity_with(known),
            settings=("parallel.trials_per_gpu",),
            related=related,
            label="runs at the same time as the others",
            help=(f"give each launch another GPU ({DEVICES}), or run the launches one after the other",),
            interval=need,
            capacity=capacity,
            side="device",
        )


def total(intervals: Sequence[Interval]) -> Interval:
    """The sum of the needs of several launches."""
    low, expected, high = (sum(getattr(one, end) for one in intervals) for end in ("low", "expected", "high"))
    return Interval(low, expected, high)


def each(intervals: Sequence[Interval]) -> str:
    """The needs in words: "8.33 GiB + 16.2 GiB"."""
    words = [gib(one.expected) for one in intervals[:SHOWN]]
    return " + ".join([*words, "..."] if len(intervals) > SHOWN else words)


Sides: TypeAlias = "Sequence[DeviceEstimate] | Sequence[HostEstimate]"


def doubts(sides: Sides) -> tuple[Assumption, ...]:
    """What the needs of the launches rest on and is not known well."""
    return tuple(dict.fromkeys(one for side in sides for one in side.assumptions))


def severity_with(sides: Sides) -> Severity | None:
    """A sum of which a part is doubtful is no error; None: the need decides."""
    return Severity.warning if doubts(sides) else None


def if_known(sides: Sides) -> str:
    """The doubts as text."""
    found = doubts(sides)
    return f", with {assumed(found)}" if found else ""


def gpu_of(case: Case) -> str | None:
    """The GPU that a launch takes: as its environment says, else the first one; None where that cannot be told.

    Processes that srun starts get what their step asks for.
    """
    if case.study.launch.launcher == "srun" or (case.job.parallel.ranks_per_node or 1) > 1:
        return None
    said = case.study.launch.environment.get(DEVICES)
    value = "0" if said is None else evaluate(said)
    return None if isinstance(value, Unknown) else str(value)


def places(cases: Sequence[Case]) -> tuple[Origin | None, tuple[tuple[Origin, str], ...]]:
    """Where the launches are written: the first, and the others."""
    found = dict.fromkeys(case.study.links[0].origin for case in cases if case.study.links)
    origins = [origin for origin in found if origin is not None]
    others = {(one.path, one.span): one for one in origins[1:] if (one.path, one.span) != _place(origins[0])}
    return (origins[0] if origins else None), tuple((one, "at the same time") for one in others.values())


def _place(origin: Origin) -> object:
    return origin.path, origin.span
