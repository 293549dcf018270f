"""Models of no family: traced when torch is there, their equal layers folded where they are equal."""

from __future__ import annotations

import pytest

from preflight.memory import device
from preflight.memory.device.fit.subprocess import request_traces
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

pytest.importorskip("torch")

OWN = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128,
       "vocab_size": 500, "layerdrop": 0.0}  # fmt: skip
JOB = {
    "model.architecture": "biogpt",
    "model.config": OWN,
    "task": "causal-lm",
    "train.batch_size": 4,
    "train.seq_len": 96,
}


@pytest.mark.slow
def test_the_folded_law_is_that_of_the_whole_model() -> None:
    """Six layers traced and folded give, at twelve, what a trace of all twelve gives."""
    resolved = resolve(build(JOB))
    assert isinstance(resolved, Resolved)
    assert resolved.dims == {"L": 12}
    folded = laws_for(resolved, "train")
    assert not isinstance(folded, Unknown), folded
    request = {**resolved.request("train").at({"b": 4, "s": 96}), "warm_up": True}
    events = request_traces([request])[0][0]["events"]
    live = peak = 0
    for value, _ in events:
        live += value if value >= 0 else -events[-1 - value][0]
        peak = max(peak, live)
    assert folded.plain.peak(resolved.all_dims).bytes == peak


def test_layers_that_differ_are_traced_whole() -> None:
    """Without a count of layers in the config nothing is folded, and the estimate is there all the same."""
    job = build({**JOB, "model.config": {**OWN, "num_hidden_layers": 3}})
    assert isinstance(device.estimate(job, None), DeviceEstimate)


def test_a_target_of_the_users_own_is_not_imported() -> None:
    found = device.estimate(
        build({"model.target": "os.system", "model.kwargs": {"command": "true"}, "train.batch_size": 2}), None
    )
    assert isinstance(found, Unknown)
    assert "os.system" in found.words


def test_what_transformers_refuses_is_the_reason() -> None:
    found = device.estimate(build({**JOB, "model.config": {**OWN, "num_attention_heads": 5}}), None)
    assert isinstance(found, Unknown)
    assert "tracing failed" in found.words
