"""Models of raw sound: shipped laws without torch, and the tapes against direct traces with it."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import estimate as estimated
from shipped import laws_for, resolve

from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law, Laws
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.workloads import speech
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

BASE: dict[str, object] = {
    "model.name": "facebook/wav2vec2-base", "train.batch_size": 4, "train.seq_len": 160_000, "train.target_len": 120,
    "train.precision": "fp16-mixed", "train.frozen": ["feature_encoder"],
}  # fmt: skip


def device(**changes: object) -> DeviceEstimate:
    found = estimated(build({**BASE, **{name.replace("__", "."): value for name, value in changes.items()}}), None)
    assert isinstance(found, DeviceEstimate), found
    return found


@pytest.mark.parametrize(("samples", "frames"), [(400, 1), (401, 2), (720, 2), (16_000, 50), (160_000, 500), (10, 1)])
def test_frames_of_a_recording(samples: int, frames: int) -> None:
    # Wav2Vec2's own count rounds down: 49 frames of a second.
    assert speech.frames(samples) == frames


def test_longer_recordings_and_trained_convolutions_take_more() -> None:
    assert device(train__seq_len=320_000).allocated.expected > 1.5 * device().allocated.expected - 2**30
    assert device(train__frozen=[]).allocated.expected > device().allocated.expected
    assert device(train__gradient_checkpointing=True).allocated.expected < device().allocated.expected


def test_where_nothing_is_frozen_in_words_both_are_possible() -> None:
    unsaid = build({key: value for key, value in BASE.items() if key != "train.frozen"})
    found = estimated(unsaid, None)
    assert isinstance(found, DeviceEstimate)
    assert found.allocated.expected == device().allocated.expected
    assert found.allocated.high >= device(train__frozen=[]).allocated.high
    assert any("train.frozen" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train.seq_len": None}, "train.seq_len is not known (samples of sound)"),
        ({"train.batch_size": None}, "train.batch_size"),
        ({"train.frozen": ["encoder.layers.0"]}, "encoder.layers.0"),
        ({"train.precision": None}, "train.precision"),
        ({"model.config": {"vocab_size": None}}, "the number of labels"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], reason: str) -> None:
    found = resolve(build({**BASE, **changes}))
    assert isinstance(found, Unknown)
    assert reason in found.words


def test_a_task_of_sequences_is_classification() -> None:
    found = resolve(build({**BASE, "task": "sequence-classification"}))
    assert isinstance(found, Resolved)
    assert found.workload.head == "classification"
    assert "t" not in found.lengths


def test_a_traced_law_stands_for_one_length_of_labels() -> None:
    few, many = (resolve(build({**BASE, "train.target_len": n})) for n in (20, 120))
    assert isinstance(few, Resolved)
    assert isinstance(many, Resolved)
    assert (few.fixed["t"], many.fixed["t"]) == (20, 120)


def test_dropout_counts_as_on_or_off_in_the_name_of_a_law() -> None:
    def model(architecture: str = "wav2vec2", **config: object) -> speech.Speech:
        return speech.Speech(architecture, {"vocab_size": 32, **config}, "speech-ctc", "ctc", False)

    assert model().filed == model(hidden_dropout=0.3).filed
    assert model().filed != model(hidden_dropout=0.0).filed
    assert model().filed == model("hubert", vocab_size=40).nearly


def _peak(reply: dict[str, Any]) -> int:
    live = peak = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        peak = max(peak, live)
    return peak


CASES = [
    ("facebook/wav2vec2-base", {}),
    pytest.param("facebook/hubert-base-ls960", {"train.gradient_checkpointing": True}, marks=pytest.mark.slow),
    pytest.param("facebook/wav2vec2-xls-r-300m", {"train.vocab_size": 71}, marks=pytest.mark.slow),
    pytest.param("facebook/hubert-large-ll60k", {"task": "sequence-classification"}, marks=pytest.mark.slow),
    pytest.param("facebook/wav2vec2-large-960h", {"task": "sequence-classification"}, marks=pytest.mark.slow),
    pytest.param("facebook/wav2vec2-base", {"train.frozen": [], "train.precision": "fp32"}, marks=pytest.mark.slow),
]
ABOVE = 0.005
"""How far wav2vec 2.0's law may lie above the trace of a HuBERT that no law ships for."""


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_a_law_is_the_trace(name: str, changes: dict[str, object]) -> None:
    pytest.importorskip("transformers")
    from preflight.tracer import steps

    job = build({**BASE, "model.name": name, "train.batch_size": 3, "train.seq_len": 320 * 224 + 80, **changes})
    asked = resolve(job)
    assert isinstance(asked, Resolved)
    law = laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    dims = asked.all_dims
    reply = steps.trace(asked.request("train").at(dims))
    assert law.plain.peak(dims).bytes == _peak(reply)
    _same_parameters(law, dims, reply)


@pytest.mark.slow
def test_wav2vec_stands_in_for_a_hubert_from_above() -> None:
    pytest.importorskip("transformers")
    from preflight.tracer import steps

    changes = {"model.name": "facebook/hubert-large-ll60k", "task": "sequence-classification", "train.batch_size": 3}
    asked = resolve(build({**BASE, **changes, "train.seq_len": 320 * 224 + 80}))
    assert isinstance(asked, Resolved)
    own = store.key_of(asked, "train")
    other = asked.workload.nearly
    assert other is not None
    made, dims = store.load(store.LawKey(other, own.text)), asked.all_dims
    assert made is not None
    reply = steps.trace(asked.request("train").at(dims))
    assert _peak(reply) <= Law(made.tape).peak(dims).bytes <= (1 + ABOVE) * _peak(reply)


def _same_parameters(law: Laws, dims: dict[str, int], reply: dict[str, Any]) -> None:
    sizes = law.made.parameters.sizes(law.made.tape.depths, dims)
    assert sum(n for n, _, _ in sizes) == sum(row[2] for row in reply["parameters"])
    assert sum(n for n, _, trains in sizes if trains) == sum(row[2] for row in reply["parameters"] if row[3])
