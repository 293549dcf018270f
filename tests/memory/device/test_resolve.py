"""From a Job to its law's key: names, local models, the hub cache, hand-described transformers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from preflight.memory import device
from preflight.memory.device.law import store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import least_by_name, resolve
from preflight.memory.device.workloads.remote_code import SAME_CODE
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

SIZES = {"train.batch_size": 4, "train.seq_len": 128}
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_attention_heads": 16,
    "num_key_value_heads": 4, "num_hidden_layers": 10, "intermediate_size": 2816, "vocab_size": 32000,
    "tie_word_embeddings": False,
}  # fmt: skip


def resolved(**job: object) -> Resolved:
    found = resolve(build({**SIZES, **{k.replace("__", "."): v for k, v in job.items()}}))
    assert isinstance(found, Resolved), found
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bert-large-uncased", "google-bert/bert-large-uncased"),
        ("BERT-Large-Uncased", "google-bert/bert-large-uncased"),
        ("ViT-B/32", "openai/clip-vit-base-patch32"),
    ],
)
def test_spellings_of_a_name(one: str, other: str) -> None:
    assert resolved(model__name=one) == resolved(model__name=other)


def test_a_local_model_and_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = tmp_path / "mine"
    local.mkdir()
    (local / "config.json").write_text(json.dumps(LLAMA))
    cached = tmp_path / "hf" / "hub" / "models--acme--tiny" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    by_path, by_name = resolved(model__path=str(local)), resolved(model__name="acme/tiny")
    assert by_path.dims == by_name.dims
    assert by_path.task == "causal-lm"
    assert by_path.dims["k"] == 4
    assert isinstance(device.estimate(build({**SIZES, "model.path": str(local)}), None), DeviceEstimate)


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"model_type": "llama"}'])
def test_a_config_that_says_too_little_is_unknown(broken: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(broken)
    assert isinstance(resolve(build({**SIZES, "model.path": str(tmp_path)})), Unknown)


def test_keys_of_nanogpt_describe_gpt2() -> None:
    hugging = {"n_embd": 384, "n_layer": 6, "n_head": 6, "vocab_size": 65, "n_positions": 256}
    spelled = {"d_model": 384, "num_layers": 6, "num_heads": 6, "vocab_size": 65, "block_size": 256}
    one = resolved(model__architecture="gpt2", model__config=hugging)
    assert one.dims == resolved(model__architecture="gpt2", model__config=spelled).dims
    assert one.dims["L"] == 6


def test_the_vocabulary_can_be_set_beside_the_model() -> None:
    assert resolved(model__name="gpt2", train__vocab_size=1000).dims["V"] == 1000


def test_no_more_positions_than_the_model_has() -> None:
    found = resolve(build({"model.name": "gpt2", "train.batch_size": 1, "train.seq_len": 1025}))
    assert isinstance(found, Unknown)
    assert "1024 positions" in found.words


@pytest.mark.parametrize("name", [name for name in SAME_CODE if name != "deberta_v2"])  # a spelling of the same
def test_architectures_that_share_a_law_share_the_tape(name: str) -> None:
    """Event by event, on a small model of each."""
    pytest.importorskip("torch")
    from preflight.tracer import steps

    config = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "intermediate_size": 48,
        "vocab_size": 99,
    }
    extra = {"sliding_window": None, "num_key_value_heads": 2} if name == "mistral" else {"max_position_embeddings": 90}
    task = "causal-lm" if name == "mistral" else "sequence-classification"
    setup = {"weights": "fp32", "autocast": "bf16", "attention": "sdpa", "mask": True}
    tapes = []
    for architecture in (name, SAME_CODE[name]):
        own = {k: v for k, v in {**config, **extra}.items() if k != "sliding_window" or architecture == "mistral"}
        model = {"architecture": architecture, "task": task, "config": own}
        reply = steps.trace({"model": model, "setup": setup, "point": {"b": 3, "s": 40}, "kind": "train"})
        tapes.append([value for value, _ in reply["events"]])
    assert tapes[0] == tapes[1]


def test_a_law_written_to_a_file_is_read_back(tmp_path: Path) -> None:
    """`preflight model trace -o FILE`, then model.law = FILE: the same estimate; another setup is not in it."""
    from click.testing import CliRunner

    from preflight.commands.model import trace

    path = tmp_path / "gpt2.json"
    done = CliRunner().invoke(trace, ["gpt2", "--set", "train.precision=bf16-mixed", "-o", str(path)])
    assert done.exit_code == 0, done.output
    job = {**SIZES, "model.name": "gpt2", "train.precision": "bf16-mixed"}
    own = device.estimate(build({**job, "model.law": str(path)}), None)
    assert own == device.estimate(build(job), None)
    other = device.estimate(build({**job, "model.law": str(path), "train.precision": "fp32"}), None)
    assert isinstance(other, Unknown)
    assert "holds no law" in other.words


def test_another_activation_is_another_law() -> None:
    def structure(name: str, config: dict[str, object]) -> dict[str, object]:
        found = resolve(build({**SIZES, "model.name": name, "model.config": config}))
        assert isinstance(found, Resolved)
        return dict(found.structure)

    assert structure("microsoft/phi-1_5", {"hidden_act": "gelu_pytorch_tanh"})["hidden_act"] == "gelu"
    assert "hidden_act" not in structure("microsoft/phi-1_5", {"hidden_act": "gelu_new"})
    assert "hidden_act" not in structure("bert-base-uncased", {"hidden_act": "silu"})  # one kernel that saves its input
    assert structure("bert-base-uncased", {"hidden_act": "relu"})["hidden_act"] == "relu"


def test_laws_of_an_old_tracer_are_refused(tmp_path: Path) -> None:
    shipped = json.loads(gzip.decompress(store.law_path("bert").read_bytes()))
    key = store.LawKey("bert", next(iter(shipped["laws"])))
    assert int(store.made_by("bert")["tracer"]) >= store.OLDEST_TRACER
    shipped["made_by"]["tracer"] = "1"
    old = tmp_path / "old.json"
    old.write_text(json.dumps(shipped))
    with pytest.raises(store.StaleLaw, match="version 1 of the tracer"):
        store.load_file(old, key)


@pytest.mark.parametrize(
    ("frozen", "whole"),
    [
        (["model.embed_tokens"], False),
        (["*", "!lm_head"], False),
        (["model.layers.0"], True),
        (["*", "!*layers.15.*"], True),
    ],
)
def test_a_model_whose_layers_are_frozen_by_number_is_traced_at_its_full_depth(frozen: list[str], whole: bool) -> None:
    found = resolved(model__name="meta-llama/Llama-3.2-1B", train__frozen=frozen)
    assert found.setup.frozen == tuple(frozen)
    assert (found.family is None) == whole
    assert found.workload.wire().get("whole", False) == whole


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("some-lab/New-8B-Instruct", 7_200_000_000),
        ("./checkpoints/New-LLM-7B-v2.0-chat", 6_300_000_000),
        ("some-lab/new-70b", 63_000_000_000),
        ("some-lab/New-1B", 500_000_000),
        ("some-lab/New-0.5B", 450_000_000),
        ("some-lab/new-1.3b-sft/checkpoint", None),  # the last folder is the model's
        ("some-lab/New-8x7B", None),
        ("some-lab/New-A3B", None),
        ("some-lab/New2.5B", None),
        ("some-lab/New-7B-to-1B", None),
        ("some-lab/New-124M-10B", None),  # of tokens, perhaps
        ("some-lab/New-77M-molecules", None),
        ("some-lab/New-7B-AWQ", None),
        ("some-lab/New-7B-bnb-4bit", None),
        ("some-lab/New-5000B", None),
        ("meta-llama/Llama-2-7b-hf", None),  # it is known
        ("/models/Qwen2-7B-Instruct", None),
    ],
)
def test_the_size_that_a_name_says(name: str, least: int | None) -> None:
    assert least_by_name(name) == least
