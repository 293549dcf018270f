"""Steps of models that see and hear: built from their catalogue's facts, and the same step at every batch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from preflight.memory.device.law import catalogue  # noqa: E402
from preflight.memory.device.workloads.perception_table import CLASSES  # noqa: E402
from preflight.tracer import perception, steps  # noqa: E402

SETUP = {"weights": "fp32", "autocast": None, "attention": "sdpa", "mask": False, "checkpointing": False, "peft": None}
SPEECH = {"hidden_size": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
          "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 48,
          "speech_decoder_postnet_units": 16, "num_mel_bins": 8,
          "speech_decoder_prenet_units": 16, "speaker_embedding_dim": 8}  # fmt: skip
READER = {
    "encoder": {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": 48, "image_size": 32},
    "decoder": {"model_type": "trocr", "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2,
                "decoder_ffn_dim": 48, "vocab_size": 101, "is_decoder": True, "add_cross_attention": True},
}  # fmt: skip


def described(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    name, recipe = next(iter(CLASSES[architecture].items()))
    found = {"architecture": architecture, "config": config, "class": name, "recipe": recipe}
    return {**found, "kind": "perception", "task": "other"}


@pytest.mark.parametrize(
    ("model", "point"),
    [
        (described("speecht5", SPEECH), {"s": 24, "t": 40}),
        (described("vision-encoder-decoder", READER), {"i": 32, "t": 12}),
    ],
    ids=["a guide for each sample", "no token that a program sets"],
)
def test_a_step_has_the_same_events_at_every_batch(model: dict[str, Any], point: dict[str, int]) -> None:
    def events(batch: int) -> list[str]:
        asked = {"model": model, "setup": SETUP, "point": {"b": batch, **point}, "kind": "train", "warm_up": False}
        return [tag for _, tag in steps.trace(asked)["events"]]

    assert len(events(2)) > 100
    assert events(2) == events(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("facebook/w2v-bert-2.0", 580), ("microsoft/speecht5_tts", 144), ("PekingU/rtdetr_r50vd", 43),
        ("microsoft/layoutlmv3-base", 126), ("facebook/mask2former-swin-tiny-coco-instance", 47.4),
        ("microsoft/trocr-base-printed", 334), ("naver-clova-ix/donut-base", 202),
    ],
)  # fmt: skip
def test_models_have_as_many_parameters_as_published(name: str, millions: float) -> None:
    """Of the models' own pages and papers; heads that a program adds are left out."""
    found = catalogue.find(name)
    assert found is not None
    config = {**found.config, **({"vocab_size": 32} if found.architecture == "wav2vec2-bert" else {})}  # of the data
    model = perception.build(described(found.architecture.replace("_", "-"), config), SETUP, {"fp32": torch.float32})
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.015)
