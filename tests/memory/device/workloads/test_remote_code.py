"""Models of remote code: which law reckons them, what is held beside it, and the names of their layers."""

from __future__ import annotations

import pytest

from preflight.memory.device import estimate
from preflight.memory.device.law import catalogue, store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.prepare import prepare
from preflight.memory.device.resolve import resolve
from preflight.memory.device.step import remote_code as own
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.remote_code import elements
from preflight.memory.device.step.replay import Replay, Segment
from preflight.memory.device.step.run import requested_peak
from preflight.memory.device.workloads import remote_code as remote
from preflight.vocabulary.estimates import ALL_PARTS, DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

LLAMA: dict[str, object] = {
    "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 8000,
}  # fmt: skip
CHATGLM: dict[str, object] = {
    "hidden_size": 512, "num_layers": 8, "num_attention_heads": 8, "ffn_hidden_size": 1024, "padded_vocab_size": 8000,
    "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 64,
}  # fmt: skip


def job(architecture: str, config: dict[str, object], **fields: object) -> Job:
    return build({
        "model.architecture": architecture, "model.config": config, "task": "causal-lm", "train.batch_size": 2,
        "train.seq_len": 256, "train.precision": "bf16-mixed", **{k.replace("__", "."): v for k, v in fields.items()},
    })  # fmt: skip


def resolved(one: Job) -> Resolved:
    found = resolve(one)
    assert isinstance(found, Resolved), found
    return found


def estimated(one: Job) -> DeviceEstimate:
    found = estimate(one, None)
    assert isinstance(found, DeviceEstimate), found
    return found


NAMES = [
    n for n in catalogue.names() if (m := catalogue.find(n)) and remote.likeness(m.architecture, m.config) is not None
]


@pytest.mark.parametrize("name", NAMES)
def test_every_named_model_of_remote_code_resolves(name: str) -> None:
    found = resolve(build({"model.name": name, "train.batch_size": 1, "train.seq_len": 32, "train.precision": "bf16"}))
    assert isinstance(found, Resolved)
    assert found.like is not None
    assert found.family is not None


@pytest.mark.parametrize(
    ("architecture", "config", "family"),
    [
        ("qwen", LLAMA, "qwen2"),
        ("baichuan", LLAMA, "llama"),
        ("internlm2", {**LLAMA, "num_key_value_heads": 2}, "llama"),
        ("InternLM", LLAMA, "llama"),
        ("chatglm", CHATGLM, "phi3"),
        ("chatglm", {"hidden_size": 512, "num_layers": 8, "num_attention_heads": 8, "inner_hidden_size": 2048,
                     "vocab_size": 8000}, "gpt_neox"),
        ("minicpm", LLAMA, "llama"),
    ],
)  # fmt: skip
def test_a_config_of_remote_code_is_read(architecture: str, config: dict[str, object], family: str) -> None:
    found = resolved(job(architecture, config))
    assert found.family is not None
    assert found.family.name == family
    assert found.dims["L"] == 8


def test_an_architecture_of_transformers_is_its_own() -> None:
    assert resolved(job("llama", LLAMA)).like is None
    assert remote.likeness("phi3", {}) is None


def test_a_dimension_that_is_missing_is_named() -> None:
    found = resolve(job("chatglm", {k: v for k, v in CHATGLM.items() if k != "padded_vocab_size"}))
    assert isinstance(found, Unknown)
    assert "padded_vocab_size" in found.words


def test_gate_and_up_share_qwens_intermediate_size() -> None:
    assert resolved(job("qwen", LLAMA)).dims["f"] == 512


@pytest.mark.parametrize(
    ("architecture", "config", "targets", "named"),
    [
        ("qwen", LLAMA, ["c_attn"], ["q_proj", "k_proj", "v_proj"]),
        ("qwen", LLAMA, None, ["q_proj", "k_proj", "v_proj"]),
        ("baichuan", LLAMA, ["W_pack", "o_proj"], ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("chatglm", CHATGLM, None, ["qkv_proj"]),
        ("xverse", LLAMA, None, ["q_proj", "v_proj"]),
        ("xverse", LLAMA, ["o_proj"], ["o_proj"]),
        ("qwen", LLAMA, "all-linear", "all-linear"),
    ],
)
def test_adapters_stand_beside_the_same_layers(
    architecture: str, config: dict[str, object], targets: object, named: object
) -> None:
    peft = {"train.peft.method": "lora", "train.peft.targets": targets}
    found = resolved(job(architecture, config, **peft))
    assert found.setup.peft.targets == (tuple(named) if isinstance(named, list) else named)


def test_the_installed_transformers_does_not_decide_for_remote_code() -> None:
    old = {"software": {"transformers": "4.30"}}
    assert resolved(job("baichuan", LLAMA, **old)).setup.loss is None
    assert resolved(job("baichuan", LLAMA, **old)).setup.attention == "sdpa"
    assert resolved(job("llama", LLAMA, **old)).setup.attention == "eager"


def test_a_head_that_is_normalised_is_held_twice() -> None:
    first = estimated(job("baichuan", {**LLAMA, "vocab_size": 125695}))
    second = estimated(job("baichuan", {**LLAMA, "vocab_size": 125696}))
    more = second.requested.expected - first.requested.expected
    copy = 2 * 125696 * 512
    states = 16 * 2 * 512  # a row more of the embedding and of the head: weights, gradients and two states of Adam
    assert copy <= more <= copy + states + 4 * 2 * 256 * 14
    assert second.breakdown["temporary"] >= copy
    assert any("normalised copy of the head" in note for note in second.notes)


def test_a_head_is_normalised_in_fp32_before_there_are_logits() -> None:
    second = {**LLAMA, "vocab_size": 125696}
    mixed, plain = resolved(job("baichuan", second)), resolved(job("baichuan", second, **{"train.precision": "bf16"}))
    assert own.pulse(mixed, mixed.all_dims) == 4 * 125696 * 512
    assert own.pulse(plain, plain.all_dims) == 0
    logits, other = ALL_PARTS.index("logits"), ALL_PARTS.index("activations")
    step = Segment.listed((("b", 0, 10, other, "forward", ""), ("b", 1, 7, logits, "forward", ""),
                           ("d", 1, 7, logits, "backward", ""), ("d", 0, 10, other, "backward", "")))  # fmt: skip
    assert own.at_head(step) == 10
    replay = Replay(CachingAllocator())
    replay.run(own.pulsed(step, 3000))
    assert replay.peak == 512 + 3072
    assert replay.allocator.allocated == 0
    assert own.pulsed(step, 0) is step


def test_linear_positions_have_a_value_per_head_and_pair() -> None:
    wide = {**LLAMA, "hidden_size": 640, "num_attention_heads": 40}
    short, long = (resolved(job("baichuan", wide, **{"train.seq_len": s})) for s in (256, 512))
    assert short.like is not None
    assert long.like is not None
    assert sum(elements(long.like.held, long.all_dims)) == 4 * sum(elements(short.like.held, short.all_dims))
    assert sum(elements(short.like.held, short.all_dims)) == (2 + 1) * 40 * 256**2


def test_a_difference_widens_the_interval() -> None:
    same, fused = estimated(job("xverse", LLAMA)), estimated(job("internlm2", LLAMA))
    assert same.reserved.expected == fused.reserved.expected
    assert same.reserved.low == fused.reserved.low
    assert fused.reserved.high > same.reserved.high
    assert any("the law of llama" in note for note in fused.notes)


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("adapters", [False, True])
def test_fused_products_differ_by_as_much_as_is_said(precision: str, checkpointing: bool, adapters: bool) -> None:
    """Phi-3 is Llama with both products fused: what `FUSED` is measured by."""
    config: dict[str, object] = {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000, "tie_word_embeddings": False,
    }  # fmt: skip
    fields: dict[str, object] = {
        "train.precision": precision,
        "train.gradient_checkpointing": checkpointing,
        "train.seq_len": 1024,
    }
    if adapters:
        fields |= {"train.peft.method": "lora"}
    jobs = [job(name, config, **fields) for name in ("llama", "phi3")]
    if any(store.load(store.key_of(resolved(one), "train")) is None for one in jobs):
        pytest.skip("no law ships for one of them")
    ready = [prepare(one) for one in jobs]
    plain, fused = (requested_peak(one) for one in ready if isinstance(one, PreparedJob))
    below, above = remote.FUSED
    assert (1 - below - 0.001) * plain <= fused <= (1 + above + 0.002) * plain
