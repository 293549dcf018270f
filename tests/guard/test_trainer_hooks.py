"""Callbacks of trainers, and the search for a batch that keeps the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from preflight.guard import room, trainers
from preflight.guard.halving import CannotHalve
from preflight.guard.laws import Need
from preflight.guard.small_card import SmallCard


def test_errors_of_other_kinds_pass() -> None:
    calls = []

    @trainers.find_batch_size(starting_batch_size=8)
    def train(batch: int, accumulation: int) -> None:
        calls.append(batch)
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes"):
        train()
    assert calls == [8]


def test_an_odd_batch_is_not_halved() -> None:
    @trainers.find_batch_size(starting_batch_size=6)
    def train(batch: int, accumulation: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(CannotHalve, match="batch of 3"):
        train()


def test_the_effective_batch_is_kept_and_the_size_remembered() -> None:
    calls: list[tuple[int, int]] = []

    @trainers.find_batch_size(starting_batch_size=64, accumulation=2)
    def train(batch: int, accumulation: int, more: str) -> str:
        calls.append((batch, accumulation))
        torch.zeros(batch, 1024 * 16)
        return more

    with SmallCard("1MiB") as card:
        assert train("a") == "a"
        assert train(more="b") == "b"
        assert card.live == 0
    assert calls == [(64, 2), (32, 4), (16, 8), (16, 8)]


def test_it_begins_where_the_job_is_expected_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def need(job: dict[str, Any], gpu: str | None) -> Need:
        asked.append((job["train.batch_size"], job["train.grad_accum"], gpu))
        size = job["train.batch_size"] * 10
        return Need(size - 9, size, size + 9, 200, "")

    monkeypatch.setattr(room, "need_of", need)
    calls: list[tuple[int, int]] = []

    @trainers.find_batch_size(starting_batch_size=64, accumulation=2, job={"model.name": "gpt2"}, gpu="A100")
    def train(batch: int, accumulation: int) -> None:
        calls.append((batch, accumulation))

    train()
    train()
    assert calls == [(16, 8), (16, 8)]
    assert asked == [(64, 1, "A100"), (32, 2, "A100"), (16, 4, "A100")]
    assert room.largest_batch({}, 63) == 63  # it cannot be halved
    assert room.largest_batch({}, 64, floor=32) == 32
    monkeypatch.setattr(room, "need_of", lambda *_: None)
    assert room.largest_batch({}, 64) == 64


class Recorder:
    def __init__(self) -> None:
        self.phase, self.entered = "load", list[str]()

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.entered.append(phase)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(trainers, "record", lambda: made)
    return made


def test_an_event_that_nobody_knows_is_no_error(recorder: Recorder) -> None:
    callback = trainers.TrainerCallback()
    callback.on_something_new(None, None, None, model=None)
    with pytest.raises(AttributeError):
        callback.other  # noqa: B018
    assert recorder.entered == []


def test_a_trainer_tells_its_evaluation(recorder: Recorder) -> None:
    callback = trainers.TrainerCallback()
    for event in ("train_begin", "prediction_step", "evaluate", "save", "train_end"):
        getattr(callback, f"on_{event}")(None, None, None, model=None)
    assert recorder.entered == ["load", "validation", "step", "step", "step"]


def test_an_accelerator_tells_its_saves(recorder: Recorder) -> None:
    class Fake:
        def save_state(self, place: str) -> str:
            return f"{place} in {recorder.phase}"

    accelerator: Any = trainers.Accelerator(Fake())
    assert accelerator.save_state("here") == "here in save"
    assert recorder.phase == "load"


@pytest.mark.slow
def test_the_trainer_of_transformers_takes_the_callback(tmp_path: Any, recorder: Recorder) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(1)} for _ in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, eval_strategy="steps", eval_steps=1,
        report_to=[], use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        transformers.BertForSequenceClassification(config), arguments, train_dataset=rows, eval_dataset=rows,
        callbacks=[trainers.TrainerCallback()],
    )  # fmt: skip
    trainer.train()
    assert "validation" in recorder.entered


@pytest.mark.slow
def test_the_trainer_of_lightning_takes_the_callback(tmp_path: Any, recorder: Recorder) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), 2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, default_root_dir=str(tmp_path), callbacks=[trainers.Lightning()],
    )  # fmt: skip
    trainer.fit(Module(), loader, loader)
    assert recorder.entered.index("step") < recorder.entered.index("validation")
    assert "save" in recorder.entered


@pytest.mark.slow
def test_an_accelerator_of_accelerate_tells_its_saves(tmp_path: Any, recorder: Recorder) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = trainers.Accelerator(accelerate.Accelerator(cpu=True))
    accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(str(tmp_path / "state"))
    assert recorder.entered == ["save", "load"]
