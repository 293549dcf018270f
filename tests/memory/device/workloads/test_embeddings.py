"""Encoders of texts that are trained to embed them: what they are resolved to, and tapes against direct traces."""

from __future__ import annotations

import pytest

from preflight.memory.device.fit.make import verify
from preflight.memory.device.fit.subprocess import has_torch, request_traces
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

NARROW = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 10,
          "vocab_size": 113}  # fmt: skip
BERT: dict[str, object] = {
    "model.architecture": "bert", "model.config": NARROW, "task": "contrastive", "train.batch_size": 6,
    "train.seq_len": 64,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_NO_CACHE", "1")


def resolved(**more: object) -> Resolved:
    found = resolve(build({**BERT, **{name.replace("__", "."): value for name, value in more.items()}}))
    assert isinstance(found, Resolved), found
    return found


def test_texts_of_a_sample_and_pieces_of_a_batch_are_part_of_the_law() -> None:
    plain, three = resolved(), resolved(model__kwargs={"texts": 3})
    assert (plain.workload.texts, three.workload.texts) == (2, 3)
    assert plain.workload.extra != three.workload.extra
    cached = resolved(model__kwargs={"mini_batch_size": 4})
    assert cached.workload.mini == 4
    assert resolved(model__kwargs={"mini_batch_size": 8}).workload.mini is None  # all of the batch is one piece


def test_other_depths_and_vocabularies_have_the_same_law() -> None:
    deep = resolved(model__config={**NARROW, "num_hidden_layers": 24, "vocab_size": 30_522})
    assert deep.workload.filed == resolved().workload.filed
    assert deep.workload.extra == resolved().workload.extra
    wide = resolved(model__config={**NARROW, "hidden_size": 64})
    assert wide.workload.filed != resolved().workload.filed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train.seq_len": None}, "train.seq_len"),
        ({"train.seq_len": 1024}, "positions"),
        ({"train.batch_size": None}, "train.batch_size"),
        ({"model.kwargs": {"texts": 1}}, "at least two texts"),
        ({"model.kwargs": {"mini_batch_size": "all"}}, "mini_batch_size"),
    ],
)
def test_what_is_missing_or_wrong_is_named(changes: dict[str, object], said: str) -> None:
    found = resolve(build({**BERT, **changes}))
    assert isinstance(found, Unknown)
    assert said in found.words


def test_without_contrastive_a_text_model_is_what_it_was() -> None:
    assert resolved(task="sequence-classification").family is not None


@pytest.mark.slow
@pytest.mark.skipif(not has_torch(), reason="needs torch")
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"texts": 3}, {"mini_batch_size": 2}])
def test_the_law_is_a_direct_trace_at_full_depth(precision: str, checkpointing: bool, kwargs: dict[str, int]) -> None:
    found = resolved(train__precision=precision, train__gradient_checkpointing=checkpointing, model__kwargs=kwargs,
                     train__batch_size=10)  # fmt: skip
    known = laws_for(found, "train")
    assert not isinstance(known, Unknown), known
    dims = found.all_dims
    request = {**found.request("train").at(dims), "warm_up": True}
    (trace,), _ = request_traces([request])
    verify(known.made, trace, dims)
