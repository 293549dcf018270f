"""What a job asks SLURM for and does not need: host memory, and GPUs that nothing runs on."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.slurm.allocation import Allocation, resolve
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import Case, Options, Rule
from preflight_rules import slurm_examples
from preflight_rules.common import at_most, bounds, count, gib, host_of, parts_of

GIB = 2**30
ASKED = ("memory", "memory_per_cpu", "memory_per_gpu")


class OverOptions(Options):
    factor: float = Field(
        2.0, gt=1, description="No finding where the job asks for less than this many times its need."
    )
    surplus: int = Field(16 * GIB, ge=0, description="No finding where less memory per node than this is left (bytes).")


class SlurmOverRequest(Rule):
    """The job asks for much more host memory than it needs, or for GPUs that no process uses.

    The need is the high end of the estimate. Memory that a node gives as a whole (`--exclusive`, `--mem=0`) costs
    nothing more and is left alone, and so is what the cluster gives by default.

    It matters because a job that asks for less starts sooner, and what it does not use nobody else can.

    The fix writes the need, rounded up to whole GiB. It is unsafe: what the estimate does not know of (libraries that
    keep caches of their own, other programs of the script) would have to fit as well.
    """

    name = "slurm-over-request"
    summary = "Much more is requested than the job needs"
    options = OverOptions
    examples = slurm_examples.OVER

    def check(self, case: Case) -> Iterator[Finding]:
        request = case.study.request
        if request is None or case.beside:
            return
        found = resolve(request, case.cluster)
        if found.impossible is not None:
            return
        options = case.options if isinstance(case.options, OverOptions) else OverOptions()  # type: ignore[call-arg]
        host = host_of(case)
        if host is not None and host.limited_by != "/dev/shm":  # then the estimate is of that alone
            yield from self._memory(case, request, found, host, options)
        yield from self._gpus(case, request, found)

    def _memory(
        self, case: Case, request: Request, found: Allocation, host: HostEstimate, options: OverOptions
    ) -> Iterator[Finding]:
        name = next((one for one in ASKED if request.origins.get(one) is not None), None)
        asked, need = found.memory_limit, host.per_node.high
        if name is None or asked is None or request.exclusive or found.memory_said.startswith("--mem=0"):
            return
        if asked < options.factor * need or asked - need < options.surplus:
            return
        yield Finding(
            rule=self.name,
            severity=Severity.info,
            confidence=Confidence.medium,
            message=(
                f"{found.memory_said or 'the request'} gives {gib(asked)} per node, and the job needs "
                f"{gib(host.per_node.expected)} ({gib(host.per_node.low)} to {gib(need)}): "
                f"{at_most(asked - need)} per node stay unused"
            ),
            origin=request.origins[name],
            settings=(f"request.{name}",),
            label=f"{gib(asked)} per node",
            parts=parts_of(host.breakdown),
            interval=bounds(host.per_node),
            capacity=asked,
            tier="host",
            proposals=tuple(self._less(name, found, need)),
        )

    def _less(self, name: str, found: Allocation, need: int) -> Iterator[Proposal]:
        units = {"memory": 1, "memory_per_cpu": found.cpus_per_node, "memory_per_gpu": found.gpus_per_node}[name]
        if not units:
            return
        each = -(-need // units // GIB) * GIB
        reason = "what the estimate does not know of has to fit as well"
        yield Proposal(
            f"{name.replace('_', ' ')} -> {gib(each)}", (Change(f"request.{name}", each),), Safety.unsafe, reason
        )

    def _gpus(self, case: Case, request: Request, found: Allocation) -> Iterator[Finding]:
        """One process of a hand-written loop that names no strategy, beside several GPUs."""
        gpus, launch = found.gpus_per_node, case.study.launch
        alone = launch.launcher == "python" and launch.ranks_per_node is None and launch.total_ranks is None
        if not gpus or gpus < 2 or not alone or case.fact("framework") != "hand-written":
            return
        if case.job.parallel.strategy != "none" or case.job.parallel.trials_per_gpu not in (1, None):
            return
        name = next((one for one in ("gpus_per_node", "gpus", "gpus_per_task") if one in request.origins), None)
        if name is None:
            return
        yield Finding(
            rule=self.name,
            severity=Severity.info,
            confidence=Confidence.low,
            message=(
                f"{count(gpus, 'GPU')} per node are requested and one process is started: it uses one, unless the "
                "program spreads its model over several"
            ),
            origin=request.origins[name],
            settings=(f"request.{name}",),
        )


RULES: tuple[type[Rule], ...] = (SlurmOverRequest,)
