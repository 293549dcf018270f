"""The verdict alone is that of the whole estimate: what batches of other lengths leave cached moves none."""

from __future__ import annotations

import pytest

from preflight.engine.estimator import Estimator
from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate
from preflight.memory.device.step import run
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY

GIB = 2**30


def job(sequences: str, memory: float, **more: object) -> Job:
    return build({
        "model.name": "gpt2", "train.precision": "bf16-mixed", "train.optimizer": "adamw", "train.batch_size": 8,
        "train.seq_len": 512, "train.sequences": sequences, "machine.gpu_memory": round(memory * GIB), **more,
    })  # fmt: skip


@pytest.mark.parametrize("sequences", ["dynamic", "bound", "exact"])
@pytest.mark.parametrize("trials", [1, 2])
def test_it_is_the_same_at_every_capacity(sequences: str, trials: int) -> None:
    verdicts = []
    for memory in (6, 9, 10, 11, 12, 13, 14, 16, 18, 20, 22, 24, 28, 40):
        one = job(sequences, memory, **{"parallel.trials_per_gpu": trials})
        whole, alone = (estimate(one, None, SHIPPED_ONLY, verdict_alone=only) for only in (False, True))
        assert isinstance(whole, DeviceEstimate)
        assert isinstance(alone, DeviceEstimate)
        assert alone.verdict == whole.verdict, memory
        verdicts.append(whole.verdict)
    assert {"exceeds", "fits"} <= {*verdicts}
    assert sequences == "exact" or "at-risk" in verdicts


def test_it_takes_one_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    replayed = run._run
    monkeypatch.setattr(run, "_run", lambda plan, recorder: asked.append(1) or replayed(plan, recorder))
    run._known.cache_clear()
    estimator = Estimator(find_gpu("A100-80GB"), SHIPPED_ONLY)
    assert estimator.verdict(job("dynamic", 40)) == "fits"
    assert len(asked) == 1
    assert estimator.full(job("dynamic", 40)).verdict == "fits"
    assert len(asked) == 2
