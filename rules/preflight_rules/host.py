"""Rules about the memory and the processors of one node."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.slurm.allocation import resolve
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Severity
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.values import Origin
from preflight_rules import host_examples, host_memory, loaders, shm
from preflight_rules.common import (
    at_most,
    bounds,
    count,
    describe_loaders,
    gib,
    host_of,
    parts_of,
    severity_of,
    sum_of,
    written,
)
from preflight_rules.host_memory import asked_for, offloaded
from preflight_rules.same_run import workers_hazard

FIELDS = (
    "train.batch_size", "data.workers", "data.prefetch", "validation.batch_size", "data.validation_workers",
    "data.sample_bytes", "data.in_memory_bytes",
)  # fmt: skip


GIVEN = ("data.sample_bytes", "data.in_memory_bytes")
"""What the data are: not for the loaders to change, so never the first to blame."""


def leverage(case: Case) -> list[tuple[str, Origin]]:
    """The written settings that host memory hangs on, the one whose halving saves most first.

    Fields that are derived from the same text count once.
    """
    host, found, seen = host_of(case), [], set()
    for order, field in enumerate(FIELDS):
        origin, value = case.origin(field), case.job.get(field)
        if host is None or origin is None or origin in seen or not isinstance(value, int) or value < 2:
            continue
        seen.add(origin)
        after = loaders.host_after(case, {field: value // 2}) if written(case, field) else None
        saved = 0 if after is None else host.per_node.expected - after.per_node.expected
        found.append((field in GIVEN, -saved, order, field, origin))
    return [(field, origin) for *_, field, origin in sorted(found, key=lambda lever: lever[:3])]


def places(case: Case) -> tuple[Origin | None, tuple[tuple[Origin, str], ...]]:
    """The setting with most leverage, and the others with their values in words."""
    found = [(origin, f"{field} = {case.job.get(field)}") for field, origin in leverage(case)]
    request = case.study.request
    if request is not None and "memory" in request.origins:
        found.append((request.origins["memory"], f"--mem gives {gib(_int(request.memory))} per node"))
    return (found[0][0], tuple(found[1:])) if found else (None, ())


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def spikes(case: Case, host: HostEstimate) -> bool:
    """Whether training alone fits and the validation loaders are what is too much."""
    if host.train_only is None or host.limit is None or case.job.data.validation_overlaps:
        return False
    return host.train_only <= host.limit


def _finding(
    case: Case, host: HostEstimate, rule: str, message: str, proposals: tuple[Proposal, ...], label: str
) -> Finding:
    severity, confidence = severity_of(host.per_node, host.limit) or (Severity.warning, Confidence.low)
    origin, related = places(case)
    return Finding(
        rule=rule,
        severity=severity,
        confidence=confidence,
        message=message,
        origin=origin,
        settings=FIELDS,
        related=related,
        label=label,
        notes=(f"the parts: {sum_of(host.breakdown, limit=12)}", *host.notes),
        help=(
            "fewer workers, a smaller prefetch and workers that do not persist keep fewer samples in flight; the run "
            "stays the same",
        ),
        parts=parts_of(host.breakdown),
        interval=bounds(host.per_node),
        capacity=host.limit,
        tier="host",
        proposals=proposals,
    )


def _too_much(case: Case) -> HostEstimate | None:
    host = host_of(case)
    return host if host is not None and host.verdict in ("exceeds", "at-risk") else None


class HostMemoryExceeded(Rule):
    """The processes of one node need more host memory than the job may use: the kernel or SLURM will kill it.

    Every DataLoader worker holds the batch it collates, decoded samples and the heap they leave behind; every loader
    keeps workers x prefetch batches in flight; a data set in memory is copied page by page into each worker as Python
    touches its reference counts; ranks multiply all of it. The message has the parts, the limit and what sets it.

    It matters because the kernel kills without a traceback, often hours into the run, and tools that sample resident
    memory miss the spike.

    The fix keeps the run the same: workers that do not persist, less prefetch, fewer workers, a smaller batch where
    accumulation (or the framework's nominal batch) makes up for it. No setting is halved twice before the others were
    halved once. A batch whose product changes is offered as unsafe.
    """

    name = "host-memory-exceeded"
    summary = "The job needs more host memory than it may use on a node"
    examples = host_examples.EXCEEDED

    def check(self, case: Case) -> Iterator[Finding]:
        host = _too_much(case)
        if host is None or spikes(case, host) or asked_for(case, host) or spoken_of(case, host):
            return
        message = (
            f"{describe_loaders(case.job)} need {gib(host.per_node.expected)} of host memory per node "
            f"({gib(host.per_node.low)} to {gib(host.per_node.high)}; {sum_of(host.breakdown)}), and "
            f"{gib(host.limit or 0)} may be used ({limit_words(host)})"
        )
        yield _finding(case, host, self.name, message, loaders.loader_proposals(case), "too much for the node's memory")


def spoken_of(case: Case, host: HostEstimate) -> bool:
    """Whether a rule of its own speaks of what is too much: `shm-too-small`, `offload-exceeds-host`."""
    return host.limited_by == "/dev/shm" or offloaded(case) is not None


def limit_words(host: HostEstimate) -> str:
    """What sets the limit, in words."""
    words = {"memory_limit": "the job's limit", "node_memory": "the node's memory"}
    return words.get(host.limited_by, host.limited_by.replace("node_memory", "the node's memory"))


class SpikeOptions(Options):
    largest_sample: int = Field(
        2**30, gt=0, description="No finding where samples (bytes, decoded) may be this large: they never are."
    )


class ValidationMemorySpike(Rule):
    """Training fits in host memory, and the job is killed when its validation loaders start.

    At the end of an epoch a second set of workers starts and fills its queue, while persistent training workers keep
    what they hold. SLURM's MaxRSS is sampled and does not show the spike.

    Where the size of one decoded sample is nowhere in the files, the inequality is solved for it instead, and the
    finding is no more than information: declare `data.sample_bytes` in the settings to have it judged.

    The fix raises `--mem` as far as the node is known to go and quiets the loaders (`persistent_workers=false`, or half
    the workers); without a SLURM request it quiets the loaders alone. The run stays the same.
    """

    name = "validation-memory-spike"
    summary = "Training fits, and the validation loaders push the node over its memory"
    options = SpikeOptions
    examples = host_examples.SPIKE

    def check(self, case: Case) -> Iterator[Finding]:
        host = _too_much(case)
        if host is not None and spikes(case, host):
            yield self._spike(case, host)
        elif case.job.data.sample_bytes is None and case.job.data.validation_workers is not None:
            yield from self._solve(case)

    def _spike(self, case: Case, host: HostEstimate) -> Finding:
        message = (
            f"training fits with {gib(host.train_only or 0)} per node, but with the validation loaders it needs "
            f"{gib(host.per_node.expected)} ({gib(host.per_node.low)} to {gib(host.per_node.high)}) of the "
            f"{gib(host.limit or 0)} it may use ({limit_words(host)}): {describe_loaders(case.job)}"
        )
        raised = loaders.raised_memory(case, host)
        proposals = (() if raised is None else (raised,)) + loaders.loader_proposals(case)
        return _finding(case, host, self.name, message, proposals, "too much once validation starts")

    def _solve(self, case: Case) -> Iterator[Finding]:
        threshold = loaders.sample_threshold(case.job, case.tracing)
        options = case.options if isinstance(case.options, SpikeOptions) else SpikeOptions()  # type: ignore[call-arg]
        if threshold is None or threshold > options.largest_sample:
            return
        alone = loaders.sample_threshold(case.job, case.tracing, training_only=True)
        more = "" if alone is None or alone <= threshold else f" (training alone: {at_most(alone)})"
        origin = case.origin("data.validation_workers", "data.workers", "train.batch_size")
        yield Finding(
            rule=self.name,
            severity=Severity.info,
            confidence=Confidence.medium,
            message=(
                f"validation fits only if one decoded sample is at most {at_most(threshold)}{more}: its size is "
                f"unknown; declare data.sample_bytes ({describe_loaders(case.job)})"
            ),
            origin=origin,
            settings=("data.sample_bytes", "data.workers", "train.batch_size"),
            label="how much depends on the size of a sample",
            help=('state it in the settings: [tool.preflight.set] "data.sample_bytes" = BYTES',),
            tier="host",
        )


class WorkersExceedCpus(Rule):
    """More DataLoader workers run than the job has processors, so they take turns and hold memory while they wait.

    PyTorch warns of it at run time ("This DataLoader will create 16 worker processes in total. Our suggested max number
    of worker in current system is 4"). Each worker keeps its batches whether or not it runs.

    The fix sets the workers to the processors of one rank. The samples and their order stay the same where the data set
    is indexed; for one that is iterated (an IterableDataset, `streaming=True`), or of a kind that cannot be read, the
    fix is unsafe: every worker runs through the data by itself.
    """

    name = "workers-exceed-cpus"
    summary = "More DataLoader workers than processors"
    examples = host_examples.CPUS

    def check(self, case: Case) -> Iterator[Finding]:
        workers, ranks = case.job.data.workers, case.job.parallel.ranks_per_node or 1
        cpus = self._cpus(case, ranks)
        if workers is None or cpus is None or workers * ranks <= max(cpus, ranks):
            return
        fewer = max(1, cpus // ranks)
        proposals: tuple[Proposal, ...] = ()
        if written(case, "data.workers"):
            changes = (Change("data.workers", fewer),)
            proposals = (loaders.proposed(case, f"workers {workers} -> {fewer}", changes, workers_hazard(case)),)
        request = case.study.request
        names = [name for name in ASKED if request is not None and name in request.origins]
        related = tuple((request.origins[name], self._asked(request, name)) for name in names if request)
        if cpus % ranks == 0:
            message = f"{count(workers, 'worker')} on {count(cpus // ranks, 'CPU')}{' per rank' if ranks > 1 else ''}"
        else:
            message = f"{ranks} ranks with {count(workers, 'worker')} each on {count(cpus, 'CPU')}"
        yield Finding(
            rule=self.name,
            severity=Severity.warning,
            confidence=Confidence.high,
            message=f"{message}: {fewer} {'in each rank ' if ranks > 1 else ''}can run at a time",
            origin=case.origin("data.workers"),
            settings=("data.workers", "machine.cpus"),
            related=related,
            label=f"more than {count(cpus, 'CPU')}" if ranks == 1 else f"in each of {ranks} ranks",
            proposals=proposals,
        )

    def _asked(self, request: Request, name: str) -> str:
        value, unit = getattr(request, name), name.removeprefix("cpus_").replace("_", " ")
        return f"{count(value, 'CPU') if isinstance(value, int) else 'CPUs'} {unit}"

    def _cpus(self, case: Case, ranks: int) -> int | None:
        """Processors that the job has on a node; what the site gives where nothing is asked for is not known."""
        request = case.study.request
        if request is None:
            return case.job.machine.cpus
        each = request.cpus_per_task
        if isinstance(each, int) and case.study.launch.launcher not in SPAWNING:
            return each * ranks  # a rank is a task
        stated = any(name in request.origins for name in ASKED)
        return resolve(request, case.cluster).cpus_per_node if stated else None


SPAWNING = ("torchrun", "accelerate", "deepspeed")
"""Launchers that start several ranks in one task, which share its processors."""
ASKED = ("cpus_per_task", "cpus_per_gpu")
"""Fields of a request that say how many processors the job gets."""

RULES: tuple[type[Rule], ...] = (
    HostMemoryExceeded,
    ValidationMemorySpike,
    WorkersExceedCpus,
    shm.ShmTooSmall,
    host_memory.DatasetCopiedPerWorker,
    host_memory.CheckpointLoadedPerRank,
    host_memory.OffloadExceedsHost,
)
