"""Device estimates: against known parameter counts, measured runs and each other."""

from __future__ import annotations

import random

import pytest
import shipped as device
from shipped import prepare

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law import catalogue
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import DEVICE_PARTS, DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

GIB, MIB = 2**30, 2**20
BERT = {
    "model.name": "bert-large-uncased",
    "train.batch_size": 48,
    "train.seq_len": 480,
    "train.precision": "bf16-mixed",
}


def estimate(gpu: str = "RTX 3090", **changes: object) -> DeviceEstimate:
    found = device.estimate(build({**BERT, **{k.replace("__", "."): v for k, v in changes.items()}}), find_gpu(gpu))
    assert isinstance(found, DeviceEstimate), found
    return found


# Counts of the published checkpoints (with the task's head): transformers' num_parameters().
COUNTS = {
    "bert-base-uncased": 109_483_778,
    "bert-large-uncased": 335_143_938,
    "roberta-base": 124_647_170,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "google/gemma-2-2b": 2_614_341_888,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "openai/clip-vit-base-patch32": 151_277_313,
    "openai/clip-vit-large-patch14": 427_616_513,
    "google/vit-base-patch16-224": 86_567_656,
    "openai/whisper-small": 241_734_912,
    "resnet50": 25_557_032,
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count(name: str) -> None:
    job = build({"model.name": name, "train.batch_size": 2, "train.seq_len": 64, "train.target_len": 32})
    ready = prepare(job)
    assert not isinstance(ready, Unknown), ready
    # RoBERTa's checkpoints have one token type where its config class has two: one row of 768 or 1,024.
    assert sum(n for n, _, _ in ready.parameters) == pytest.approx(COUNTS[name], abs=1024 if "roberta" in name else 0)


def test_all_points_of_a_search_share_the_weights_of_their_model() -> None:
    def ready(name: str, batch: int, length: int) -> PreparedJob:
        found = prepare(build({"model.name": name, "train.batch_size": batch, "train.seq_len": length}))
        assert not isinstance(found, Unknown)
        return found

    one, other = ready("gpt2", 4, 128), ready("gpt2", 7, 300)
    assert one.dims != other.dims
    assert one.parameters is other.parameters
    assert one.rank.rows is other.rank.rows
    assert one.rank.owned is other.rank.owned  # summed once, and the optimizer's step is made of it once
    deeper = ready("gpt2-medium", 4, 128)  # the same law, at other dimensions
    assert len(deeper.parameters) > len(one.parameters)
    assert deeper.gradients > one.gradients


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_models_of_the_catalogue_are_estimated_without_torch(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most by a shipped law; of the others the reason is said, and what their published count makes certain."""
    lawless = []
    names = catalogue.names()[::every]
    for name in names:
        found = catalogue.find(name)
        assert found is not None
        precision = "fp32" if found.target else "bf16-mixed"
        job = build({"model.name": name, "train.batch_size": 2, "train.seq_len": 64, "train.target_len": 32,
                     "train.precision": precision})  # fmt: skip
        device_memory = device.estimate(job, None)
        if isinstance(device_memory, Unknown):
            assert device_memory.words
            lawless.append(name)
        elif device_memory.lower_bound:
            assert any("lower bound: " in note for note in device_memory.notes)
            lawless.append(name)
    assert len(lawless) <= len(names) // 3, lawless


def test_the_reported_bert_large_run() -> None:
    """A 24 GB card died at batch 48 x 480; a trace gives about 28 GiB."""
    found = estimate()
    assert 27 * GIB < found.process.expected < 29 * GIB
    assert found.verdict == "exceeds"
    assert estimate(train__batch_size=16, train__seq_len=384, train__grad_accum=4).verdict == "fits"


def test_parts_add_up() -> None:
    found = estimate()
    assert tuple(sorted(found.breakdown)) == tuple(sorted(DEVICE_PARTS))
    assert sum(found.breakdown.values()) == found.process.expected
    assert max(found.phases.values()) <= found.process.expected
    assert found.phases[found.phase] == max(found.phases.values())


def test_tiers_are_in_order() -> None:
    found = estimate()
    assert found.requested.expected <= found.allocated.expected <= found.reserved.expected < found.process.expected


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_suffices_and_grows(seed: int) -> None:
    rng = random.Random(seed)
    job = {
        "model.name": rng.choice(["bert-base-uncased", "gpt2", "deberta-v3-base", "roberta-large"]),
        "train.batch_size": rng.randint(1, 64), "train.seq_len": rng.randint(16, 512),
        "train.precision": rng.choice(["fp32", "bf16-mixed", "bf16"]), "train.grad_accum": rng.choice([1, 4]),
        "train.gradient_checkpointing": rng.choice([True, False]),
    }  # fmt: skip
    bound = device.bound(build(job), None)
    assert bound is not None
    # It bounds what is allocated; what stays reserved beside it is for the replay to say.
    full = device.estimate(build(job), None)
    assert isinstance(full, DeviceEstimate)
    assert full.allocated.expected + full.breakdown["context"] <= bound[0]
    for field in ("train.batch_size", "train.seq_len"):
        more = device.bound(build({**job, field: int(job[field]) + 1}), None)  # type: ignore[call-overload]
        if more is not None:  # one more than the model has positions has no bound
            assert more[0] >= bound[0]
            assert more[1] >= bound[1]


def test_accumulation_keeps_gradients_through_forward() -> None:
    once, several = estimate(train__batch_size=8), estimate(train__batch_size=8, train__grad_accum=4)
    assert several.allocated.expected > once.allocated.expected
    assert several.allocated.expected - once.allocated.expected <= 336_000_000 * 4 * 1.02


def test_checkpointing_saves_activations() -> None:
    assert estimate(train__gradient_checkpointing=True).process.expected < 0.5 * estimate().process.expected


def test_logits_kept_by_the_loop_cost_their_bytes() -> None:
    gpt2 = {"model__name": "gpt2", "train__batch_size": 8, "train__seq_len": 1024}
    dropped, kept = estimate(**gpt2), estimate(**gpt2, train__outputs_kept="step")
    assert kept.requested.expected > dropped.requested.expected


def test_the_largest_allocation_is_spelled_out() -> None:
    found = estimate(model__name="gpt2", train__batch_size=32, train__seq_len=1024, train__precision="fp32")
    largest = found.largest_allocation
    assert largest is not None
    assert largest.bytes == 32 * 1024 * 50257 * 4
    assert largest.product == "32,768 tokens x 50,257 vocabulary x 4"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train__batch_size": None}, "train.batch_size"),
        ({"train__seq_len": None}, "train.seq_len"),
        ({"train__seq_len": 513}, "512 positions"),
        ({"model__name": "no/such-model"}, "no/such-model"),
        ({"train__optimizer": "mystery"}, "mystery"),
        ({"train__precision": None}, "train.precision"),
    ],
)
def test_unknown_says_what_is_missing(changes: dict[str, object], reason: str) -> None:
    found = device.estimate(build({**BERT, **{k.replace("__", "."): v for k, v in changes.items()}}), None)
    assert isinstance(found, Unknown)
    assert reason in found.words


def test_a_parameter_count_alone_never_fits() -> None:
    few = build({"model.parameters": 10_000_000})
    many = build({"model.parameters": 7_000_000_000})
    gpu = find_gpu("RTX 3090")
    verdicts = [device.estimate(job, gpu) for job in (few, many)]
    assert [v.verdict for v in verdicts if isinstance(v, DeviceEstimate)] == ["unknown", "exceeds"]


def test_resnet_against_nvidia_smi() -> None:
    """timm's resnet50 on an A100 40GB, SGD with momentum (itu-rad/GPUMemNet): from batch 8 to 32 nvidia-smi rose by
    2,354 MiB, from 32 to 64 by 3,236."""

    def process(batch: int) -> float:
        job = build({"model.target": "timm:resnet50", "train.batch_size": batch, "train.optimizer": "sgd-momentum"})
        found = device.estimate(job, find_gpu("A100 40GB"))
        assert isinstance(found, DeviceEstimate)
        return found.process.expected / MIB

    assert process(32) - process(8) == pytest.approx(5229 - 2875, rel=0.08)
    assert process(64) - process(32) == pytest.approx(8465 - 5229, rel=0.08)


def test_a_batch_of_pairs_takes_what_twice_the_sequences_take() -> None:
    pairs = estimate(train__batch_size=8, train__sequences_per_sample=2, validation__batch_size=64)
    sequences = estimate(train__batch_size=16, validation__batch_size=128)
    assert (pairs.process, pairs.breakdown, pairs.phases) == (sequences.process, sequences.breakdown, sequences.phases)
    assert sequences.largest_batch_size is not None
    assert pairs.largest_batch_size == sequences.largest_batch_size // 2


def test_without_the_sequences_of_a_sample_nothing_is_known() -> None:
    found = device.estimate(build({**BERT, "train.sequences_per_sample": None}), find_gpu("RTX 3090"))
    assert isinstance(found, Unknown)
    assert found.fields == ("train.sequences_per_sample",)
