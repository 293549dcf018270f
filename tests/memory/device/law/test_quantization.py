"""How a job's weights are quantised: stated, by the config of its model, or by its name; and what cannot train."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.memory.device.law import adapters, quantization
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.store import key_of
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.lower_bound import lower_bound
from preflight.memory.device.resolve import resolve
from preflight.memory.device.step.loading import load
from preflight.memory.device.step.replay import CachingAllocator, Replay
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

LORA: dict[str, Any] = {
    "task": "causal-lm", "train.batch_size": 2, "train.seq_len": 256, "train.precision": "fp16-mixed",
    "train.peft.method": "lora", "train.peft.targets": ["q_proj", "v_proj"],
}  # fmt: skip
LLAMA = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 10, "num_attention_heads": 4,
         "vocab_size": 1000}  # fmt: skip


def job(**more: Any) -> Job:
    return build({**LORA, **{key.replace("__", "."): value for key, value in more.items()}})


@pytest.mark.parametrize(
    ("name", "kind", "bits"),
    [
        ("TheBloke/Llama-2-7B-GPTQ", "gptq", 4),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq", 4),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "gptq", 8),
        ("TheBloke/Llama-2-7B-AWQ", "awq", 4),
        ("meta-llama/Llama-2-7b-hf", "none", None),
        ("unsloth/llama-3-8b-bnb-4bit", "none", None),  # bitsandbytes' other settings are not in a name
    ],
)
def test_a_name_decides_where_the_job_says_nothing(name: str, kind: str, bits: int | None) -> None:
    found = quantization.stated(job(model__name=name)).train.quantization
    assert (found.type, found.bits) == (kind, bits)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, ("gptq", 8, 32)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, ("awq", 4, 64)),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}}},
            ("hqq", 3, 64),
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", None, None)),
        ({"quant_method": "compressed-tensors"}, ("none", None, None)),
    ],
)
def test_a_config_decides_where_the_job_says_nothing(given: Any, expected: Any) -> None:
    asked = job(model__architecture="llama", model__config={**LLAMA, "quantization_config": given})
    found = quantization.stated(asked).train.quantization
    assert (found.type, found.bits, found.group_size) == expected


def test_what_the_job_says_stands() -> None:
    said = job(model__name="TheBloke/Llama-2-7B-GPTQ", train__quantization__type="awq", train__quantization__bits=4)
    assert quantization.stated(said) is said
    bits = job(model__name="TheBloke/Llama-2-7B-GPTQ", train__quantization__bits=3)
    assert quantization.stated(bits).train.quantization.bits == 3


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"train__peft__method": None}, "only with adapters"),
        ({"train__peft__method": "dora"}, "dora"),
        ({"train__quantization__backend": "marlin"}, "no backward"),
        ({"train__quantization__backend": "gptq_exllamav2"}, "no backward"),
        ({"train__quantization__backend": "mystery"}, "mystery"),
        ({"train__quantization__bits": 5}, "5 bits"),
    ],
)
def test_what_cannot_train_says_why(more: dict[str, Any], word: str) -> None:
    found = resolve(job(model__name="TheBloke/Llama-2-7B-GPTQ", **more))
    assert isinstance(found, Unknown)
    assert word in found.words


def test_laws_tell_them_apart() -> None:
    keys = set()
    kinds: list[dict[str, Any]] = [{}, {"bits": 8}, {"group_size": 32}, {"backend": "cuda-old"}, {"type": "awq"}]
    for more in kinds:
        asked = {f"train__quantization__{key}": value for key, value in {"type": "gptq", **more}.items()}
        found = resolve(job(model__name="meta-llama/Llama-2-7b-hf", **asked))
        assert isinstance(found, Resolved)
        keys.add(key_of(found, "train").text)
    assert len(keys) == len(kinds)


def test_k_bit_preparation_leaves_the_rest_as_it_is_but_for_awq() -> None:
    """peft, utils/other.py, prepare_model_for_kbit_training."""
    for kind, cast in (("gptq", False), ("hqq", False), ("eetq", False), ("torchao-int8", False), ("awq", True)):
        said = job(train__quantization__type=kind, train__quantization__upcast_rest=True).train.quantization
        assert quantization.upcasts(said) == cast


def test_a_checkpoint_arrives_as_it_is_and_other_weights_pass_in_16_bits() -> None:
    rows = [(2**20, 0.5, False)]
    peaks = []
    for kind in ("gptq", "hqq"):
        replay = Replay(CachingAllocator(None))
        load(replay, rows, QuantizedWeights(kind, None, False, bits=4))
        peaks.append(replay.result().reserved)
    assert peaks[0] < peaks[1]


def test_a_bound_counts_the_bits_that_a_name_says() -> None:
    asked = job(model__name="TheBloke/Llama-2-7B-GPTQ", model__parameters=8 * 10**9)
    context = Interval(0, 0, 0)
    found = lower_bound(asked, (None, context), Unknown("no law"))
    assert isinstance(found, DeviceEstimate)
    assert found.breakdown["weights"] == 4 * 10**9


def test_a_method_has_its_own_rank_where_the_job_says_none() -> None:
    assert adapters.rank(job(train__peft__method="vera").train.peft) is None
    assert adapters.rank(job(train__peft__method="vera", train__peft__r=8).train.peft) == 8
    assert adapters.rank(job(train__peft__method="loha").train.peft) == 8


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({}, True),
        ({"use_rslora": True, "init_lora_weights": "pissa"}, True),
        ({"bias": "none", "modules_to_save": None}, True),
        ({"modules_to_save": ["lm_head"]}, False),
        ({"bias": "all"}, False),
        ({"layers_to_transform": [0, 1]}, False),
    ],
)
def test_options_that_shape_lora_leave_the_familys_law(options: dict[str, Any], alone: bool) -> None:
    asked = job(model__architecture="llama", model__config=LLAMA, train__peft__options=options)
    assert adapters.is_lora_alone(asked.train.peft) == alone
    found = resolve(asked)
    assert isinstance(found, Resolved)
    assert (found.family is not None) == alone
    assert bool(found.workload.wire().get("whole")) == ("layers_to_transform" in options)


@pytest.mark.parametrize(
    ("said", "versions", "found"),
    [
        (True, {}, ("recomputed",)),
        (False, {}, ()),
        (None, {}, None),
        (None, {"transformers": "4.44.0"}, ("recomputed",)),
        (None, {"transformers": "4.57.1"}, None),
        (None, {"transformers": "4.57.1", "trl": "0.27.0"}, ("recomputed",)),
        (None, {"transformers": "4.57.1", "trl": "0.28.0"}, ()),
        (None, {"transformers": "5.0.0"}, ()),
    ],
)
def test_int8_layers_keep_their_input_by_the_kind_of_checkpointing(
    said: bool | None, versions: dict[str, str], found: tuple[str, ...] | None
) -> None:
    asked = job(
        model__name="meta-llama/Llama-2-7b-hf",
        train__quantization__type="int8",
        train__gradient_checkpointing=True,
        train__reentrant=said,
        software=versions,
    )
    answer = resolve(asked)
    if found is None:
        assert isinstance(answer, Unknown)
        assert answer.fields == ("train.reentrant",)
    else:
        assert isinstance(answer, Resolved)
        assert ("recomputed" in key_of(answer, "train").text) == bool(found)
