"""Generation by encoders with a decoder, and by decoders whose layers differ in their windows."""

from __future__ import annotations

import random

import pytest
from law_keys import from_key
from test_families_traces import draw, law_of, traced_peak

from preflight.memory.device.estimate import estimate
from preflight.memory.device.families import FAMILIES
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build

GENERATE = {"model.name": "google-t5/t5-base", "train.batch_size": 4, "train.seq_len": 256, "train.target_len": 32,
            "train.precision": "bf16", "train.optimizer": "adamw", "train.gradient_checkpointing": False,
            "validation.batch_size": 8, "validation.generates": True, "validation.max_new_tokens": 64}  # fmt: skip
TWO = 2
BYTES = 2


def generation(**changes: object) -> int:
    found = estimate(build({**GENERATE, **changes}), None)
    assert isinstance(found, DeviceEstimate), found
    return found.phases["generation"]


def test_beams_multiply_the_caches_and_not_the_encoder() -> None:
    one, many = generation(), generation(**{"validation.beams": 4})
    layers, width, batch = 12, 768, 8
    caches = TWO * layers * width * BYTES * batch * (256 + 64)
    assert one + 3 * 0.9 * caches < many < one + 3 * 1.3 * caches


def test_an_answer_of_one_token_has_hardly_a_cache() -> None:
    assert generation(**{"validation.max_new_tokens": 1}) < generation(**{"validation.max_new_tokens": 512})


@pytest.mark.parametrize("name", ["bart", "whisper", "gemma2", pytest.param("t5", marks=pytest.mark.slow),
                                  pytest.param("mt5", marks=pytest.mark.slow),
                                  pytest.param("marian", marks=pytest.mark.slow)])  # fmt: skip
def test_a_law_of_generation_is_the_trace(name: str) -> None:
    pytest.importorskip("transformers")
    from preflight.memory.device.fit.make import request
    from preflight.tracer import steps

    family, rng = FAMILIES[name], random.Random(f"generate {name}")
    key = rng.choice([one for one in store.keys(name) if one.split()[1] == "generate"])
    task, kind, setup, structure = from_key(key, family)
    dims = draw(family, structure, rng, False)
    if "t" in dims:
        dims["t"] = 2 * dims["t"] // 8 * 8 + 5
    reply = steps.trace(request(family, task, kind, setup, structure, dims))
    assert Law(law_of(name, key).tape).peak(dims).bytes == traced_peak(reply), (key, dims)


LARGE_VOCABULARY = {"model.name": "Qwen/Qwen2.5-0.5B", "train.batch_size": 1, "train.seq_len": 128,
                    "train.precision": "bf16", "validation.batch_size": 16, "validation.seq_len": 512,
                    "validation.generates": True, "validation.max_new_tokens": 16}  # fmt: skip


def test_a_loop_that_only_generates_has_no_labelled_forward() -> None:
    found = {loss: estimate(build({**LARGE_VOCABULARY, "validation.loss": loss}), None) for loss in (True, False, None)}
    assert all(isinstance(one, DeviceEstimate) for one in found.values())
    both, generates, open_ = (found[loss] for loss in (True, False, None))
    assert isinstance(both, DeviceEstimate)
    assert isinstance(generates, DeviceEstimate)
    assert isinstance(open_, DeviceEstimate)
    assert "validation" in both.phases
    assert "validation" not in generates.phases
    assert not generates.notes
    assert generates.process.expected == open_.process.expected
    assert generates.process.high < both.process.high == open_.process.high
    assert any("is not stated" in note for note in open_.notes)
