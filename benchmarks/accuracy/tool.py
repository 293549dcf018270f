"""preflight itself, as the command line runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.accuracy.peers.base import Refused
from benchmarks.accuracy.truth import Fields
from preflight.engine.estimator import Estimator, Tracing
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build

NAME = "preflight"


@dataclass
class Preflight:
    """`preflight estimate JOB.json`: unknown models are traced where torch is there."""

    tracing: bool = True
    crashes: list[str] = field(default_factory=list)

    def device(self, job: Job) -> DeviceEstimate | Refused:
        """The device estimate, a lower bound included. What the engine raises is a fault of ours, and is counted."""
        gpu = find_gpu(job.machine.gpu) if job.machine.gpu else None
        try:
            found = Estimator(gpu, Tracing(self.tracing)).full(job)
        except Exception as error:
            words = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:100]
            self.crashes.append(words)
            return Refused(f"crashed: {words}")
        return found.device if found.device is not None else Refused(found.reasons.get("device", "no reason"))

    def estimate(self, job: Job) -> DeviceEstimate | Refused:
        """A figure that can be compared: a lower bound is none."""
        found = self.device(job)
        if isinstance(found, DeviceEstimate) and found.lower_bound:
            return Refused("; ".join(found.notes) or "only a lower bound")
        return found


def job_of(fields: Fields) -> Job:
    """A Job from a run's dotted fields."""
    return build(dict(fields))
