"""Copies of a Job with fields set: those of the one way there is, against a Job built of all fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from preflight.vocabulary.edits_of_job import possible, unchecked, with_fields
from preflight.vocabulary.job import Job, build, fields

COUNTS = st.none() | st.integers(1, 1 << 40)
SUITING: dict[str, st.SearchStrategy[Any]] = {
    "train.batch_size": COUNTS,
    "train.seq_len": COUNTS,
    "train.precision": st.sampled_from([None, "fp32", "bf16"]),
    "train.quantization.type": st.sampled_from([None, "nf4", "none"]),
    "train.peft.r": COUNTS,
    "train.frozen": st.lists(st.text(max_size=3), max_size=2),
    "task": st.sampled_from([None, "causal-lm"]),
    "model.name": st.none() | st.text(max_size=3),
    "model.config": st.none() | st.dictionaries(st.sampled_from(["n", "m"]), st.integers()),
    "data.shuffle": st.none() | st.booleans(),
    "software": st.dictionaries(st.sampled_from(["torch", "trl"]), st.text("0123456789.", max_size=4)),
}
JOBS = st.fixed_dictionaries({}, optional=SUITING)


@given(JOBS, JOBS)
def test_a_copy_is_the_job_of_all_fields(before: dict[str, object], values: dict[str, object]) -> None:
    job = build(dict(before))
    whole = build({**{name: job.get(name) for name in fields()}, **values})
    assert with_fields(job, values) == unchecked(job, values) == possible(job, values) == whole
    assert job == build(dict(before))  # what was copied stays as it was


@pytest.mark.parametrize(
    ("field", "value"),
    [("train.batch_size", 0), ("train.batch_size", "many"), ("train.precision", "int3"), ("machine.gpu_memory", -1)],
)
def test_a_value_that_does_not_suit_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        with_fields(Job(), {field: value})
    assert possible(Job(), {field: value}) is None


@pytest.mark.parametrize("field", ["train.batch", "training", "train.peft.rank"])
def test_a_field_that_there_is_not(field: str) -> None:
    with pytest.raises(KeyError):
        with_fields(Job(), {field: 1})


def test_keys_inside_a_mapping() -> None:
    job = build({"model.config": {"n_layer": 2, "rope": {"factor": 1}}})
    changed = with_fields(job, {"model.config.n_layer": 4, "model.config.rope.factor": 8, "software.torch": "2.4"})
    assert changed.model.config == {"n_layer": 4, "rope": {"factor": 8}}
    assert changed.software == {"torch": "2.4"}
    assert job.model.config == {"n_layer": 2, "rope": {"factor": 1}}
    assert with_fields(Job(), {"model.config.n_layer": 4}).model.config == {"n_layer": 4}


def test_defaults_stay_defaults() -> None:
    """What a model freezes by itself is asked only where the job does not state `train.frozen`."""
    changed = with_fields(build({"train.seq_len": 8}), {"train.batch_size": 2})
    assert changed.train.model_fields_set == {"seq_len", "batch_size"}
