"""A step moment by moment: nothing that is drawn is lost, and the peak is the estimate's."""

from __future__ import annotations

from preflight.memory import device
from preflight.memory.device.estimate import timeline
from preflight.memory.device.step.run import thinned
from preflight.vocabulary.estimates import DeviceEstimate, StepMoment
from preflight.vocabulary.job import build

JOB = {"model.name": "bert-base-uncased", "train.batch_size": 16, "train.seq_len": 128, "train.precision": "bf16-mixed"}


def test_peak_and_phases_are_the_estimates() -> None:
    found = device.estimate(build(JOB), None)
    assert isinstance(found, DeviceEstimate)
    moments = timeline(build(JOB), None)
    top = max(moments, key=lambda moment: moment.allocated)
    assert (top.allocated, top.phase) == (found.allocated.expected, found.phase)
    assert next(m.phase for m in moments if m.phase != "backward") == "forward"
    assert {m.phase for m in moments} == {"forward", "backward", "optimizer"}
    assert all(sum(m.parts) == m.allocated <= m.reserved for m in moments)


def test_thinning_keeps_peaks_and_phases() -> None:
    moments = [StepMoment("forward" if n < 5000 else "backward", (n * 7919) % 10007, 0, ()) for n in range(9000)]
    few = thinned(moments, 100)
    assert len(few) <= 110
    assert max(m.allocated for m in few) == max(m.allocated for m in moments)
    assert {m.phase for m in few} == {"forward", "backward"}


def test_nothing_to_draw_without_a_law() -> None:
    assert timeline(build({"model.parameters": 10**9, "train.batch_size": 1}), None) == ()
