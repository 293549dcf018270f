"""Estimates of a study's jobs where a saved dry run knows more than its files."""

from __future__ import annotations

from msgspec.structs import replace

from preflight.engine.dry_runs import FREE, OF_THE_RUN, Kept
from preflight.engine.estimator import Estimator
from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.tracing import Tracing

_DECIDED = tuple(name for name in fields() if name.partition(".")[0] in OF_THE_RUN and name not in FREE)


class SeenEstimator(Estimator):
    """Estimates of one study's jobs, by a run where the files do not say enough."""

    kept: Kept | None = None
    own: Job | None = None
    """A job of the study. A job that differs from it in more than batch and length is none of the run's command."""

    def on(self, gpu: Gpu | None) -> SeenEstimator:
        return SeenEstimator(gpu, self.tracing, kept=self.kept, own=self.own)

    def _like(self, tracing: Tracing) -> SeenEstimator:
        return SeenEstimator(self.gpu, tracing, self.calibration, kept=self.kept, own=self.own)

    @property
    def speaks(self) -> bool:
        """Whether the run says what the jobs of the study need, and not their files."""
        return self.own is not None and self.decides(self.own)

    @property
    def by_laws(self) -> bool:
        return self.kept is None

    @property
    def doubted(self) -> bool:
        kept = self.kept
        return kept is not None and self.speaks and (not kept.trusted or bool(kept.run.doubts_on(self.gpu)))

    def reach(self, field: str) -> tuple[int, int] | None:
        law = self.kept.run.law if self.kept is not None and self.speaks else None
        if law is None:
            return None
        return {"train.batch_size": law.batches, "train.seq_len": law.reached_lengths}.get(field)

    def _estimates(self, job: Job) -> Estimates:
        found = super()._estimates(job)
        device = self._seen(job, found.device)
        if device is None:
            return found
        causes = {side: why for side, why in found.causes.items() if side != "device"}
        unknown = tuple(name for name in found.unknown if name.partition(".")[0] not in OF_THE_RUN)
        return replace(found, device=device, unknown=unknown, causes=causes)

    def _seen(self, job: Job, found: DeviceEstimate | None) -> DeviceEstimate | None:
        """The estimate of the run; None where the files know better, or the run does not speak of the job."""
        if self.kept is None or (found is not None and not found.lower_bound):
            return None
        run = self.kept.run
        if run.why_not(job) or not self._is_of_the_command(job):
            return None
        device = run.estimate(job, self.gpu)
        if not self.kept.trusted and device.fitting:
            why = "its dry run lies in the checked tree; --trust accepts it"
            doubt = Assumption("model.law", self.kept.path, Standing.assumed, why)
            device = replace(device, verdict="fits-if", assumptions=(*device.assumptions, doubt))
        return replace(device, notes=(*device.notes, f"from a dry run of {self.kept.named}"))

    def device_bound(self, job: Job) -> tuple[int, int] | None:
        found = super().device_bound(job)
        if found is not None or self.kept is None or self.kept.run.why_not(job) or not self._is_of_the_command(job):
            return found
        return self.kept.run.bound(job, self.gpu) if self.kept.run.whole else None

    def _is_of_the_command(self, job: Job) -> bool:
        own = self.own
        return own is None or all(job.get(name) == own.get(name) for name in _DECIDED)

    def decides(self, job: Job) -> bool:
        """Whether the run says what a job of the study needs, and not its files."""
        return self._seen(job, super()._estimates(job).device) is not None

    def may_fit(self, job: Job) -> bool | None:
        return super().may_fit(job) if self.kept is None or not self.decides(job) else None


def seen_by(kept: Kept, own: Job, estimator: Estimator) -> SeenEstimator:
    """The estimator of a study of whose command there is a run. `own`: a job of the study."""
    return SeenEstimator(estimator.gpu, estimator.tracing, estimator.calibration, kept=kept, own=own)
