"""`preflight fit` says the same numbers as `estimate` and the fixes of `check`, for the same job."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.engine.ask import check, estimate, job_of
from preflight.engine.check import Analysis, CheckOptions, CheckSetup, analyse, setup, smallest
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.engine.fit.orders import ORDERS, field_named
from preflight.engine.fit.question import Question
from preflight.engine.fit.run import Wish, answered
from preflight.engine.fit.solve import solve
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.fits import Answer, FitOfStudy
from preflight.vocabulary.job import Job
from preflight.vocabulary.spelling import kind_of
from preflight_rules.shared.programs import LOOP

MODELS = ("gpt2", "bert-base-uncased", "t5-small", "distilbert-base-uncased")
GPUS = ("T4", "RTX 3080 10GB", "RTX 4090", "L40S", "A100 80GB")
FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    return {
        "model": draw(st.sampled_from(MODELS)),
        "train.batch_size": draw(st.integers(1, 300)),
        "train.seq_len": draw(st.sampled_from((64, 100, 256, 384, 512))),
        "train.target_len": 64,
        "train.precision": draw(st.sampled_from(("fp32", "bf16-mixed", "fp16-mixed"))),
        "train.grad_accum": draw(st.sampled_from((1, 2, 4))),
    }


def asked(fields: dict[str, object], gpu: str | None) -> Question:
    return Question(job_of(fields), Estimator(find_gpu(gpu) if gpu is not None else None))


def fits(job: Job, gpu: str) -> bool:
    device = estimate(job, gpu).device
    return device is not None and device.fitting


# --- what must not happen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["train.precision", "model.name", "train", "nothing", "software.torch", "train.optimizer", "rnak"]
)
def test_a_field_without_an_order_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--field"):
        field_named(text)


@pytest.mark.parametrize("missing", ["train.batch_size", "train.seq_len"])
def test_a_missing_field_is_named_and_never_guessed(missing: str) -> None:
    fields: dict[str, object] = {"model": "gpt2", "train.batch_size": 8, "train.seq_len": 256}
    del fields[missing]
    other = {"train.batch_size": "train.seq_len", "train.seq_len": "train.batch_size"}[missing]
    answer = solve(other, asked(fields, "RTX 4090"))
    assert answer.value is None
    assert missing in answer.missing
    assert answer.frontier
    for row in answer.frontier:
        found = estimate(job_of({"model": "gpt2", **row}), "RTX 4090").device
        assert found is not None
        assert found.fitting


def test_a_strategy_that_is_not_known_is_shown_for_each() -> None:
    fields: dict[str, object] = {"model": "gpt2", "train.batch_size": 4, "train.seq_len": 512}
    question = asked({**fields, "parallel.strategy": None, "parallel.ranks_per_node": None}, "T4")
    answer = solve("train.batch_size", question)
    assert answer.value is None
    assert "parallel.strategy" in answer.missing
    found = {row["parallel.strategy"]: row["train.batch_size"] for row in answer.frontier}
    alone = estimate(job_of(fields), "T4").device
    assert alone is not None
    assert found["none"] == alone.largest_batch_size
    eight = {"parallel.strategy": "zero3", "parallel.gpus_per_node": 8, "parallel.ranks_per_node": 8}
    sharded = estimate(job_of({**fields, **eight}), "T4").device
    assert sharded is not None
    assert found["zero3"] == sharded.largest_batch_size


def test_without_a_gpu_the_batch_is_shown_by_card() -> None:
    answer = solve("train.batch_size", asked({"model": "gpt2", "train.batch_size": 8, "train.seq_len": 256}, None))
    assert answer.value is None
    assert answer.missing == ("machine.gpu",)
    assert len(answer.frontier) > 3


def test_a_field_that_the_job_has_not_gets_no_number() -> None:
    """Tokens of an image model: every value would fit."""
    question = asked({"model.target": "torchvision:resnet50", "train.batch_size": 8, "train.image_size": 224}, "T4")
    answer = solve("train.seq_len", question)
    assert answer.value is None
    assert "does not depend" in answer.reason


def test_a_parameter_count_never_fits() -> None:
    job = {"model.parameters": 10**8, "train.batch_size": 1, "train.seq_len": 128}
    assert solve("train.batch_size", asked(job, "H200")).value is None
    assert solve("machine.gpu", asked(job, None)).value is None


def test_lengths_end_at_the_positions_of_the_model() -> None:
    answer = solve("train.seq_len", asked({"model": "gpt2", "train.batch_size": 1, "train.seq_len": 64}, "H200"))
    assert answer.value == 1024
    assert answer.limit
    assert not answer.open_ended


def test_host_fields_need_the_memory_of_the_node() -> None:
    job = {"model": "gpt2", "train.batch_size": 8, "train.seq_len": 256, "data.sample_bytes": 4096}
    assert solve("data.workers", asked(job, "T4")).missing == ("machine.node_memory",)


# --- what must ------------------------------------------------------------------------------------------------------


def test_every_order_is_a_field_of_a_job() -> None:
    assert [name for name in ORDERS if kind_of(name) is None] == []


@FEW
@given(jobs(), st.sampled_from(GPUS))
def test_the_batch_is_that_of_estimate(fields: dict[str, object], gpu: str) -> None:
    answer = solve("train.batch_size", asked(fields, gpu))
    found = estimate(job_of(fields), gpu).device
    assert found is not None
    assert (answer.value or 0) == (found.largest_batch_size or 0)
    if isinstance(answer.value, int):
        assert fits(with_fields(job_of(fields), {"train.batch_size": answer.value}), gpu)


@FEW
@given(jobs(), st.sampled_from(GPUS), st.sampled_from(("train.seq_len", "train.grad_accum")))
def test_the_answer_fits_and_the_next_value_does_not(fields: dict[str, object], gpu: str, field: str) -> None:
    answer = solve(field, asked(fields, gpu))
    job = job_of(fields)
    if answer.value is None:
        total = (job.train.batch_size or 1) * (job.train.grad_accum or 1)
        least = {"train.seq_len": 1} if field == "train.seq_len" else {"train.batch_size": 1, "train.grad_accum": total}
        assert not fits(with_fields(job, least), gpu)
        return
    assert answer.job is not None
    assert fits(answer.job, gpu)
    assert isinstance(answer.value, int)
    if field == "train.seq_len":
        assert answer.limit or not fits(with_fields(job, {field: answer.value + 1}), gpu)
    else:
        old = (job.train.batch_size or 0) * (job.train.grad_accum or 0)
        assert (answer.job.train.batch_size or 0) * (answer.job.train.grad_accum or 0) == old


@FEW
@given(jobs())
def test_the_card_is_that_of_estimate(fields: dict[str, object]) -> None:
    answer = solve("machine.gpu", asked(fields, None))
    job = job_of(fields)
    named = smallest(estimate(job).device, job)
    assert answer.value == (named.name if named is not None else None)


@FEW
@given(st.sampled_from((12, 24, 32, 48, 64, 96)), st.sampled_from((1, 2, 3)), st.sampled_from(("T4", "RTX 3080 10GB")))
def test_the_fix_is_that_of_check(tmp_path_factory: pytest.TempPathFactory, batch: int, steps: int, gpu: str) -> None:
    folder = tmp_path_factory.mktemp("job")
    text = LOOP.replace("default=64", f"default={batch}").replace("default=1)", f"default={steps})")
    (folder / "train.py").write_text(text)
    [report] = check(["train.py"], gpu=gpu, cwd=folder).reports
    finding = next((one for one in report.findings if one.rule == "gpu-memory-exceeded"), None)
    answer, study = fit_of(folder, gpu)
    device = report.studies[0].space.worst.estimates.device
    assert device is not None
    assert answer.value == device.largest_batch_size
    if finding is not None:
        assert any(f"the largest batch that fits is {answer.value}" in line for line in finding.help)
        assert finding.fix is not None
        assert study.fix is not None
        assert (study.fix.edits, study.fix.safety) == (finding.fix.edits, finding.fix.safety)


def fit_of(folder: Path, gpu: str) -> tuple[Answer, FitOfStudy]:
    found = analysed(folder, gpu)
    [study] = answered(*found, Wish(("train.batch_size",)), folder)
    return study.parts[0].answers[0], study


def analysed(folder: Path, gpu: str) -> tuple[Analysis, CheckSetup]:
    batch = batches(["train.py"], folder, from_hook=False)[0]
    project, question = setup(batch, CheckOptions(gpu), folder)
    return analyse(project, question), question


def test_gpus_of_a_sharded_job() -> None:
    job = {"model": "gpt2-xl", "train.batch_size": 1, "train.seq_len": 512, "parallel.strategy": "zero3"}
    answer = solve("parallel.gpus_per_node", asked(job, "RTX 4090"))
    assert isinstance(answer.value, int)
    assert answer.value > 1
    fewer = {"parallel.gpus_per_node": answer.value // 2, "parallel.ranks_per_node": answer.value // 2}
    assert not fits(with_fields(job_of(job), fewer), "RTX 4090")


def test_a_size_of_samples_that_is_not_known_is_solved_for() -> None:
    """Workers by sample bytes, in the place of a guess."""
    fields = {"model": "gpt2", "train.batch_size": 8, "train.seq_len": 256, "machine.node_memory": 16 * 2**30}
    answer = solve("data.workers", asked(fields, "T4"))
    assert answer.missing == ("data.sample_bytes",)
    assert len(answer.frontier) > 3
    for row in answer.frontier:
        host = estimate(job_of({**fields, **row}), "T4").host
        assert host is not None
        assert host.fitting


def test_workers_of_a_node() -> None:
    job = {
        "model": "gpt2", "train.batch_size": 64, "train.seq_len": 256, "machine.node_memory": 16 * 2**30,
        "data.sample_bytes": 2**22,
    }  # fmt: skip
    question = asked(job, "T4")
    answer = solve("data.workers", question)
    assert isinstance(answer.value, int)
    verdicts = [
        question.estimator.full(with_fields(job_of(job), {"data.workers": n})).host
        for n in (answer.value, answer.value + 1)
    ]
    assert [one is not None and one.fitting for one in verdicts] == [True, False]
