"""Rules about what a node holds beside its loaders: data sets as Python objects, checkpoints, offloaded states."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.memory.host.checkpoint import weights_of
from preflight.memory.host.estimate import limit_of, solve_in_memory_bytes
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Confidence, Finding, Proposal, Severity
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Span
from preflight_rules import host_memory_examples, loaders
from preflight_rules.common import at_most, bounds, count, gib, host_of, parts_of, related_of, severity_of, sum_of

GIB = 2**30


class CopiedOptions(Options):
    smallest: int = Field(2 * GIB, ge=0, description="No finding where the copies take less than this (bytes).")
    largest_unknown: int = Field(
        2 * GIB, gt=0, description="No finding where data of unknown size may take this (bytes) and still fit."
    )


class DatasetCopiedPerWorker(Rule):
    """A data set is kept as Python objects, and every DataLoader worker ends up with a copy of it.

    Forked workers share the memory of their parent until it is written to. Reading a Python object writes its reference
    count, so the pages of a list of dicts or strings are copied one by one as a worker visits them: after an epoch with
    shuffling each worker has its own, and memory has grown by data set x workers. Spawned workers are sent a copy at
    once.

    It matters because nothing is allocated where it happens: memory creeps up through the first epoch like a leak, and
    the kernel kills the job hours later.

    There is no fix to write: keep the data in numpy arrays or tensors (one for all strings, with their offsets), in an
    Arrow table (`datasets`, whose pages are shared and can be dropped), or read it from disk in `__getitem__`.
    """

    name = "dataset-copied-per-worker"
    summary = "Workers end up with copies of a data set of Python objects"
    options = CopiedOptions
    examples = host_memory_examples.COPIED

    def check(self, case: Case) -> Iterator[Finding]:
        data, host = case.job.data, host_of(case)
        options = case.options if isinstance(case.options, CopiedOptions) else CopiedOptions()  # type: ignore[call-arg]
        if not data.workers or data.in_memory_kind not in ("objects", "strings"):
            return
        copies = 0 if host is None else host.breakdown.get("copy_on_write", 0)
        if copies >= options.smallest:
            yield self._known(case, copies)
        elif not data.in_memory_bytes and case.fact("dataset_held") is not None:
            largest = solve_in_memory_bytes(case.job, case.job.model.parameters, tracing=case.tracing)
            if largest is not None and largest < options.largest_unknown:
                yield self._solved(case, largest)

    def _known(self, case: Case, copies: int) -> Finding:
        data, host = case.job.data, host_of(case)
        worth = None if host is None else severity_of(host.per_node, host.limit)
        message = f"{_held(case)} takes {gib(data.in_memory_bytes or 0)}, and {_workers(case)} copy {gib(copies)} more"
        return self._finding(case, message, Severity.warning, Confidence.high if worth else Confidence.medium)

    def _solved(self, case: Case, largest: int) -> Finding:
        limit = limit_of(case.job)[0] or 0
        message = (
            f"{_held(case)} fits only if it takes at most {at_most(largest)}: {_workers(case)} copy it, and "
            f"{gib(limit)} may be used; declare data.in_memory_bytes"
        )
        return self._finding(case, message, Severity.info, Confidence.medium)

    def _finding(self, case: Case, message: str, severity: Severity, confidence: Confidence) -> Finding:
        origin = _fact_origin(case, "dataset_held") or case.origin("data.in_memory_bytes", "data.workers")
        return Finding(
            rule=self.name,
            severity=severity,
            confidence=confidence,
            message=message,
            origin=origin,
            settings=("data.in_memory_bytes", "data.in_memory_kind", "data.workers"),
            related=related_of(case, origin, ("data.workers", f"data.workers = {case.job.data.workers}")),
            label="Python objects, whose reference counts reading writes",
            help=(
                "numpy arrays, tensors and Arrow tables (`datasets`) are not copied; for strings, one array of all "
                "bytes and one of offsets",
            ),
            tier="host",
        )


def _held(case: Case) -> str:
    kind = "a list of strings" if case.job.data.in_memory_kind == "strings" else "a list of Python objects"
    return f"the data set ({kind})"


def _workers(case: Case) -> str:
    data, ranks = case.job.data, case.job.parallel.ranks_per_node or 1
    each = f" of each of {ranks} ranks" if ranks > 1 else ""
    return f"{count(data.workers or 0, 'worker')}{each}"


def _fact_origin(case: Case, name: str) -> Origin | None:
    found = case.study.facts.get(name)
    return None if found is None else found.origin


class CheckpointOptions(Options):
    smallest: int = Field(8 * GIB, ge=0, description="No finding where all ranks together load less (bytes).")


class CheckpointLoadedPerRank(Rule):
    """Every rank of a node reads the whole checkpoint into host memory at the same time.

    `torch.load(path, map_location="cpu")` holds the file's tensors until they are dropped, beside the model that they
    are copied into: ranks x checkpoint, in the first minute of the job, whatever the GPUs hold afterwards. With
    `mmap=True` the tensors are pages of the file, which all ranks share and the kernel can drop.

    It matters because the job works on one GPU and is killed on eight, before the first step.

    The fix adds `mmap=True`. It is not written unasked: the file must have been saved in torch's zip format (1.6 and
    later) and be named by its path.
    """

    name = "checkpoint-loaded-per-rank"
    summary = "Every rank of a node holds the whole checkpoint in host memory"
    options = CheckpointOptions
    examples = host_memory_examples.CHECKPOINT

    def check(self, case: Case) -> Iterator[Finding]:
        ranks = case.job.parallel.ranks_per_node or 1
        origin = _fact_origin(case, "checkpoint_loaded")
        weights = weights_of(case.job, tracing=case.tracing) if origin is not None and ranks > 1 else None
        options = case.options if isinstance(case.options, CheckpointOptions) else CheckpointOptions()  # type: ignore[call-arg]
        if weights is None or origin is None or weights.bytes * ranks < options.smallest:
            return
        limit = limit_of(case.job)[0]
        total = weights.bytes * ranks
        used = "" if limit is None else f" of the {gib(limit)} that may be used"
        yield Finding(
            rule=self.name,
            severity=Severity.warning,
            confidence=Confidence.high if limit is not None and total > limit else Confidence.medium,
            message=(
                f"each of {ranks} ranks loads the weights ({gib(weights.bytes)}) into host memory: at least "
                f"{gib(total)} at once{used}, beside the model that each of them has built"
            ),
            origin=origin,
            settings=("parallel.ranks_per_node",),
            related=related_of(case, origin, ("parallel.ranks_per_node", f"{ranks} ranks on a node")),
            label="runs in every rank",
            help=("torch.load(..., mmap=True), or load in one rank and broadcast",),
            tier="host",
            proposals=tuple(_mapped(case, origin)),
        )


def _mapped(case: Case, origin: Origin) -> Iterator[Proposal]:
    """`mmap=True` behind the last argument of the call."""
    text = case.project.source(origin.path).text[origin.span.start : origin.span.end]
    if not origin.editable or not text.endswith(")"):
        return
    body = text[:-1].rstrip()
    at = origin.span.start + len(body) - body.endswith(",")
    reason = "the file must be in the format of torch 1.6 and later, and be named by its path"
    yield Proposal("mmap=True", reason=reason, edits=(Edit(origin.path, Span(at, at), ", mmap=True"),))


class OffloadExceedsHost(Rule):
    """States that are offloaded from the GPUs need more memory than the node has.

    ZeRO-Offload keeps fp32 weights, both Adam moments and gradients of every parameter on the host, in pinned buffers:
    the states alone are 16 to 18 bytes per parameter, and public reports of ZeRO-3 with full offload have 23 to 25.
    All ranks of all nodes share one copy, so a node holds parameters / nodes.

    It matters because the GPU side looks fine, and the job dies when DeepSpeed initialises the engine.

    There is no fix to write: more nodes, a node with more memory, the optimizer alone or nothing offloaded, or adapters
    (LoRA), whose states are small.
    """

    name = "offload-exceeds-host"
    summary = "Offloaded states need more host memory than the job may use"
    examples = host_memory_examples.OFFLOAD

    def check(self, case: Case) -> Iterator[Finding]:
        host = offloaded(case)
        if host is None or asked_for(case, host):
            return
        worth = severity_of(host.per_node, host.limit)
        weights = weights_of(case.job, tracing=case.tracing)
        if worth is None or weights is None or host.limit is None:
            return
        nodes = case.job.parallel.nodes or 1
        need = host.breakdown["offload"]
        origin = case.origin("parallel.offload", "parallel.strategy")
        yield Finding(
            rule=self.name,
            severity=worth[0],
            confidence=worth[1],
            message=(
                f"{weights.parameters:,} parameters with {case.job.parallel.offload} offloaded keep {gib(need)} on "
                f"{'the node' if nodes == 1 else f'each of {nodes} nodes'} "
                f"({need * nodes / weights.parameters:.0f} bytes each); with the rest it needs "
                f"{gib(host.per_node.expected)} of the {gib(host.limit)} it may use"
            ),
            origin=origin,
            settings=("parallel.offload", "parallel.nodes", "machine.memory_limit"),
            label="kept in host memory",
            notes=(f"the parts: {sum_of(host.breakdown, limit=12)}", *host.notes),
            help=("offload less, spread the states over more nodes, or train adapters",),
            parts=parts_of(host.breakdown),
            interval=bounds(host.per_node),
            capacity=host.limit,
            tier="host",
        )


def offloaded(case: Case) -> HostEstimate | None:
    """The host estimate where offloaded states are most of what is too much; then `host-memory-exceeded` is silent."""
    host = host_of(case)
    if host is None or host.verdict not in ("exceeds", "at-risk"):
        return None
    return host if host.breakdown.get("offload", 0) * 2 >= host.per_node.expected else None


def asked_for(case: Case, host: HostEstimate) -> bool:
    """Whether the limit is SLURM's request and the node may have more: then `slurm-memory-too-low` speaks of it."""
    if case.study.request is None or host.limited_by != "memory_limit" or host.limit is None:
        return False
    node = loaders.node_limit(case)
    return node is None or node > host.limit
