"""Effects: what one says to the replay it says to the bound as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from msgspec.structs import replace

from preflight.machines.gpus import find_gpu
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import effects, run
from preflight.memory.device.step.effect import Effect, Passage
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import SHIPPED_ONLY

GIB = 2**30
JOB: dict[str, object] = {"model.name": "gpt2", "train.batch_size": 2, "train.seq_len": 128, "train.precision": "fp32"}


def ready(**more: object) -> PreparedJob:
    fields = {**JOB, **{name.replace("__", "."): value for name, value in more.items()}}
    found = prepare(build(fields), find_gpu("A100 40GB"), tracing=SHIPPED_ONLY)
    assert isinstance(found, PreparedJob), found
    return found


class Stays(Effect):
    def before(self, ready: PreparedJob) -> Iterator[Passage]:
        yield Passage("load", "temporary", (GIB,))


class Passes(Effect):
    def after(self, ready: PreparedJob) -> Iterator[Passage]:
        yield Passage("save", "weights", passing=(64 * GIB,))


class Grows(Effect):
    """Every storage of the step is twice as large."""

    def step(self, ready: PreparedJob, segment: Segment, dims: Mapping[str, int]) -> Segment:
        return replace(segment, sizes=tuple(2 * size for size in segment.sizes))

    def raised(self, ready: PreparedJob, peak: int) -> int:
        return 2 * peak


def peaks(job: PreparedJob, monkeypatch: pytest.MonkeyPatch, *more: Effect) -> tuple[int, int]:
    """Requested by the law, and allocated by the replay."""
    monkeypatch.setattr(run, "EFFECTS", (*effects.EFFECTS, *more))
    return run.requested_peak(job), run.replayed(job, (), None).allocated


def test_nothing_of_the_list_touches_a_plain_job_but_workspaces() -> None:
    plain = ready()
    assert [one for effect in effects.EFFECTS for one in effect.before(plain) if not one.library] == []
    assert [one for effect in effects.EFFECTS for one in effect.after(plain)] == []
    assert [note for effect in effects.EFFECTS for note in effect.notes(plain)] == []
    assert run.requested_by_libraries(plain) == sum(effects.workspaces(plain.gpu))


@pytest.mark.parametrize("effect", [Stays(), Passes(), Grows()])
def test_the_bound_rises_as_the_replay_does(effect: Effect, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ready()
    requested, allocated = peaks(job, monkeypatch)
    more, taken = peaks(job, monkeypatch, effect)
    assert more > requested
    assert taken - allocated == pytest.approx(more - requested, rel=0.02)


def test_what_passes_after_the_steps_comes_beside_what_is_there_then(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ready()
    states = job.weights + sum(job.optimizer.states)
    assert peaks(job, monkeypatch, Passes())[0] == states + 64 * GIB
