"""Trials of a real Optuna on SQLite, on a card in small."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from preflight.guard import laws, phases, room, trials
from preflight.guard.laws import Need
from preflight.guard.small_card import SmallCard

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)
MIB = 2**20
PRUNED, COMPLETE, FAIL = (getattr(optuna.trial.TrialState, name) for name in ("PRUNED", "COMPLETE", "FAIL"))


@pytest.fixture
def study(tmp_path: Path) -> Any:
    return optuna.create_study(
        storage=f"sqlite:///{tmp_path / 'study.db'}", sampler=optuna.samplers.RandomSampler(seed=0)
    )


def train(trial: Any, batch: int = 64, accumulation: int = 1) -> float:
    """A trial whose memory grows with its width and its batch."""
    width = trial.suggest_categorical("width", [64, 1024])
    model = torch.nn.Linear(width, width)
    loss = model(torch.randn(batch * 16, width)).pow(2).mean()
    loss.backward()
    trial.set_user_attr("effective", batch * accumulation)
    return float(loss.detach())


def by_state(study: Any) -> dict[Any, list[Any]]:
    return {state: [one for one in study.trials if one.state == state] for state in (PRUNED, COMPLETE, FAIL)}


def test_an_error_that_is_not_about_memory_fails_the_trial(study: Any) -> None:
    def broken(trial: Any) -> float:
        raise ValueError("CUDA out of memory. Tried to allocate 1.00 GiB")

    with pytest.raises(ValueError, match="out of memory"):
        study.optimize(trials.optuna(broken), n_trials=1)
    assert [one.state for one in study.trials] == [FAIL]


def test_the_recorder_keeps_no_model_of_a_trial_that_ended(study: Any) -> None:
    phases.record()
    with SmallCard() as card:
        study.optimize(train, n_trials=3)
        gc.collect()
        assert card.live == 0


def test_what_runs_out_is_pruned_and_the_next_trial_starts_clean(study: Any) -> None:
    with SmallCard("10MiB") as card:
        study.optimize(trials.optuna(train), n_trials=12)
        gc.collect()  # a trial that completed last has cycles of its own
        assert card.live == 0
    found = by_state(study)
    assert found[PRUNED]
    assert found[COMPLETE]
    assert not found[FAIL]
    for one in found[PRUNED]:
        assert one.params["width"] == 1024
        assert one.user_attrs["preflight.oom"] == "allocator"
        assert one.user_attrs["preflight.oom_tried"] > 0
        assert one.user_attrs["preflight.oom_config"] == {"width": "1024"}


@pytest.mark.slow
def test_half_the_batch_with_twice_the_accumulation(study: Any) -> None:
    with SmallCard("10MiB"):
        study.optimize(trials.optuna(train, halve="batch"), n_trials=12)
    found = by_state(study)
    assert not found[PRUNED]
    wide = [one for one in found[COMPLETE] if one.params["width"] == 1024]
    assert wide
    assert all(one.user_attrs["effective"] == 64 for one in found[COMPLETE])
    assert all(one.user_attrs["preflight.oom_batch"] > 8 for one in wide)


def test_an_objective_without_accumulation_is_not_halved(study: Any) -> None:
    def without(trial: Any, batch: int = 64) -> float:
        return train(trial, batch)

    with SmallCard("1MiB"), pytest.raises(TypeError, match="accumulation"):
        study.optimize(trials.optuna(without, halve="batch"), n_trials=12)


def judged(monkeypatch: pytest.MonkeyPatch, capacity: int | None) -> list[dict[str, Any]]:
    """The need is a MiB for each unit of width, give or take a tenth."""
    asked: list[dict[str, Any]] = []

    def need(job: dict[str, Any], gpu: str | None) -> Need:
        asked.append(job)
        size = job["width"] * MIB
        return Need(size * 9 // 10, size, size * 11 // 10, capacity, "")

    monkeypatch.setattr(trials, "need_of", need)
    return asked


def job(trial: Any) -> dict[str, Any]:
    return {"width": trial.suggest_categorical("width", [64, 1024])}


def test_what_certainly_exceeds_is_pruned_before_it_runs(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = judged(monkeypatch, 500 * MIB)
    ran = []

    def objective(trial: Any) -> float:
        ran.append(trial.suggest_categorical("width", [64, 1024]))
        return 0.0

    study.optimize(trials.optuna(objective, job=job), n_trials=10)
    found = by_state(study)
    assert set(ran) == {64}
    assert {one.params["width"] for one in found[PRUNED]} == {1024}
    assert len(asked) == 10
    [constraint] = {one.user_attrs["preflight.over"] for one in found[PRUNED]}
    assert constraint == 524 * MIB
    assert found[PRUNED][0].user_attrs["preflight.expected"] == 1024 * MIB
    if hasattr(found[PRUNED][0], "constraints"):
        assert all(value > 0 for value in found[PRUNED][0].constraints.values())


def test_the_middle_decides_unless_headroom_is_wanted(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, 1000 * MIB)  # low fits, the middle does not
    study.optimize(trials.optuna(lambda trial: 0.0, job=job), n_trials=6)
    assert not by_state(study)[PRUNED]
    study.optimize(trials.optuna(lambda trial: 0.0, job=job, headroom=True), n_trials=6)
    assert by_state(study)[PRUNED]


def test_ask_and_tell(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with SmallCard("10MiB"):
        for _ in range(8):
            asked = study.ask()
            with trials.trial(asked) as outcome:
                outcome.value = train(asked)
            study.tell(asked, *outcome.told)
    found = by_state(study)
    assert len(found[PRUNED]) + len(found[COMPLETE]) == 8
    assert found[PRUNED]
    assert found[COMPLETE]


def test_a_question_that_nobody_answers_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(laws, "_answers", {})
    monkeypatch.setenv(laws.COMMAND, f"{sys.executable} -c 1/0")
    assert laws.need_of({"a": 1}, None) is None
    assert "not judged" in capsys.readouterr().err
    monkeypatch.setattr(laws, "command", lambda: None)
    assert laws.need_of({"a": 2}, None) is None


@pytest.mark.slow
def test_a_preflight_of_another_process_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "_answers", {})
    monkeypatch.setenv(laws.COMMAND, f"{sys.executable} -m preflight")
    need = laws.need_of({"model": "gpt2", "task": "causal-lm", "train": {"batch_size": 8, "seq_len": 128}}, "RTX 4090")
    assert need is not None
    assert 2**30 < need.low < need.high < (need.capacity or 0)


def test_a_function_of_an_agent_is_freed_of_what_it_holds() -> None:
    failed: dict[int, BaseException] = {}

    def run() -> None:
        model = torch.nn.Linear(512, 512)
        torch.zeros(8 * MIB)
        del model

    with SmallCard("4MiB") as card:
        for number in range(3):  # as the agent does it
            try:
                trials.wandb(run)()
            except Exception as error:
                failed[number] = error
        assert len(failed) == 3
        assert card.live == 0


def test_a_job_of_the_public_api_is_asked_as_it_was_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.api import job_of

    asked: list[Any] = []
    monkeypatch.setattr(trials, "need_of", lambda job, gpu: asked.append(job))
    study = optuna.create_study()
    study.optimize(trials.optuna(lambda _: 1.0, job=lambda _: job_of({"train.batch_size": 8})), n_trials=1)
    assert asked == [{"train": {"batch_size": 8}}]


def test_an_attempt_with_another_batch_is_another_job() -> None:
    assert room.at({"train.batch_size": 8}, 4, 2) == {"train.batch_size": 4, "train.grad_accum": 2}
    nested = {"train": {"batch_size": 8, "seq_len": 9}}
    assert room.at(nested, 4, 2) == {"train": {"batch_size": 4, "seq_len": 9, "grad_accum": 2}}
    assert room.at(nested, None, 1) == nested


@pytest.mark.parametrize(
    ("stated", "fraction", "free"),
    [(None, 1.0, 2000), (None, 0.25, 500 + 24), (1024, 1.0, 1024), (1024, 0.25, 500 + 24), (400, 0.25, 400)],
)
def test_a_trial_is_judged_by_the_share_of_the_card(
    study: Any, monkeypatch: pytest.MonkeyPatch, stated: int | None, fraction: float, free: int
) -> None:
    """A memory fraction limits what the allocator reserves of the card that is here, and the context comes on top."""
    need = Need(1000 * MIB, 1000 * MIB, 1000 * MIB, None if stated is None else stated * MIB, "", 24 * MIB)
    monkeypatch.setattr(trials, "need_of", lambda job, gpu: need)
    for name in ("is_available", "is_initialized"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2000 * MIB))
    monkeypatch.setattr(torch._C, "_cuda_getMemoryFraction", lambda _: fraction, raising=False)
    study.optimize(trials.optuna(lambda trial: 0.0, job=job), n_trials=1)
    [found] = study.trials
    assert found.user_attrs["preflight.over"] == (1000 - free) * MIB
    assert found.state is (PRUNED if free < 1000 else COMPLETE)
