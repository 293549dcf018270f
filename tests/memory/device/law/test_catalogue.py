"""Models by name: spellings, and their counts of parameters against the published ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.memory.device.law import catalogue, store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

SIZES = {"train.batch_size": 1, "train.seq_len": 32, "train.target_len": 32, "train.text_len": 16}
SETUPS = [
    {"train.precision": precision, "train.gradient_checkpointing": checkpointing}
    for precision in ("bf16", "bf16-mixed", "fp32")
    for checkpointing in (False, True)
]


def resolved(name: str, **job: object) -> Resolved | Unknown:
    return resolve(build({**SIZES, "model.name": name, **job}))


def test_there_are_models_of_every_kind() -> None:
    found = [catalogue.find(name) for name in catalogue.names()]
    assert len(found) >= 300
    tasks = {model.task for model in found if model is not None}
    assert {"causal-lm", "seq2seq-lm", "sequence-classification", "image-classification", "contrastive",
            "speech-seq2seq", "diffusion"} <= tasks  # fmt: skip


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("LLAMA-2-7B", "meta-llama/Llama-2-7b-hf"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B"),
        ("https://huggingface.co/Qwen/Qwen3-8B/", "Qwen/Qwen3-8B"),
        ("hf.co/google/flan-t5-base", "google/flan-t5-base"),
        ("codellama-7b", "codellama/CodeLlama-7b-hf"),
        ("gpt2-hf", "openai-community/gpt2"),
        ("torchvision:resnet18", "microsoft/resnet-18"),
        ("vgg16", "torchvision:vgg16"),
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("codellama/CodeLlama-70b-Instruct-hf", "codellama/CodeLlama-70b-hf"),
        ("unsloth/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("unsloth/llama-3-8b-bnb-4bit", "meta-llama/Meta-Llama-3-8B"),
        ("TheBloke/Llama-2-7B-Chat-GPTQ", "meta-llama/Llama-2-7b-hf"),
    ],
)
def test_spellings(spelled: str, name: str) -> None:
    found = catalogue.find(spelled)
    assert found is not None
    assert found.name == name


def test_no_two_models_share_a_spelling() -> None:
    seen: dict[str, str] = {}
    for name in catalogue.names():
        model = catalogue.find(name)
        assert model is not None
        assert model.name == name
        for spelling in (name, *model.aliases):
            assert seen.setdefault(spelling.lower(), name) == name, spelling


@pytest.mark.parametrize(
    ("spelled", "quantised"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "AWQ"),
        ("Qwen/Qwen-7B-Chat-Int4", "GPTQ"),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "nf4"),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8", "FP8"),
        ("Qwen/Qwen2.5-7B-Instruct", None),
    ],
)
def test_a_name_says_how_weights_are_quantised(spelled: str, quantised: str | None) -> None:
    found = catalogue.find(spelled)
    assert found is not None
    assert found.quantised == quantised


@pytest.mark.parametrize("name", ["someone/llama-2-7b", "someone/Llama-2-7b-chat", "openai/Llama-2-7b-hf-instruct"])
def test_a_stranger_with_the_same_name_is_not_the_model(name: str) -> None:
    assert catalogue.find(name) is None


def test_quantised_weights_are_what_the_job_says_or_unknown() -> None:
    name = "unsloth/llama-3-8b-bnb-4bit"
    plain = resolved(name, **SETUPS[0])
    assert isinstance(plain, Unknown)
    assert "train.quantization.type" in plain.words
    said = resolved(name, **SETUPS[0], **{"train.quantization.type": "nf4"})
    assert isinstance(said, Resolved)
    assert said.dims["V"] == 128256
    other = resolved("TheBloke/Llama-2-7B-GPTQ", **SETUPS[0])
    assert isinstance(other, Unknown)
    assert "GPTQ" in other.words


@pytest.mark.parametrize("wrong", ["", "  ", "/", "llama", "bert-bse-uncased", "meta-llama/", "../etc/passwd", "-hf"])
def test_what_is_no_model_is_not_found(wrong: str) -> None:
    assert catalogue.find(wrong) is None


def test_names_that_look_like_it() -> None:
    assert catalogue.nearest("bert-bse-uncased")[0] == "google-bert/bert-base-uncased"
    assert "Qwen/Qwen3-8B" in catalogue.nearest("Qwen/Qwen3-9B")
    assert catalogue.nearest("zzzzzzzzz") == ()


def test_words_narrow_the_list() -> None:
    assert set(catalogue.names(("QWEN3", "moe"))) == {"Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B"}
    assert catalogue.names(("zzz",)) == ()


def test_a_lookup_reads_the_file_once_and_builds_one_model() -> None:
    for cached in (catalogue._rows, catalogue._index, catalogue._model):
        cached.cache_clear()
    for name in ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"):
        assert catalogue.find(name) is not None
    assert [cached.cache_info().misses for cached in (catalogue._rows, catalogue._index, catalogue._model)] == [1, 1, 1]


def test_a_line_of_the_data_is_a_model() -> None:
    """So that a change shows in a diff, and the file stays small."""
    text = Path(catalogue.__file__).with_name("models.json").read_text(encoding="utf-8")
    assert len(text) < 200_000
    for line in text.splitlines()[2:-1]:
        row = json.loads("{" + line.strip().rstrip(",") + "}")
        assert len(row) == 1


def counted(name: str) -> int | None:
    """Parameters by the first law that ships for a model, whatever the setup; None where none does."""
    for setup in SETUPS:
        found = resolved(name, **setup)
        if isinstance(found, Unknown) or found.family is None:
            continue
        made = store.load(store.key_of(found, "train"))
        if made is not None:
            return sum(n for n, _, _ in made.parameters.sizes(made.tape.depths, found.all_dims))
    return None


LEFT_OUT = {"google/mobilebert-uncased": (512 + 1) * 512 + (512 + 1) * 2}
"""Parameters that a published figure leaves out: MobileBERT's pooler and classifier, of width 512."""


def assert_published(name: str, count: int) -> None:
    model = catalogue.find(name)
    assert model is not None
    figures = catalogue.published(model)
    count -= LEFT_OUT.get(name, 0)
    if figures is not None:
        # A figure may be rounded to the nearest or cut off, so a whole unit of its last digit is allowed.
        assert abs(count - figures[0]) <= 2 * figures[1], f"{name}: {count:,}, published {model.parameters}"


NAMES = [n for n in catalogue.names() if (model := catalogue.find(n)) and model.parameters and not model.target]


def of_a_family(name: str) -> bool:
    found = resolved(name, **SETUPS[0])
    return isinstance(found, Resolved) and found.family is not None


def test_laws_have_as_many_parameters_as_published() -> None:
    counts = {name: counted(name) for name in NAMES if of_a_family(name)}
    shipped = {name: count for name, count in counts.items() if count is not None}
    assert len(shipped) > 300
    for name, count in shipped.items():
        assert_published(name, count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_models_have_as_many_parameters_as_published(name: str) -> None:
    """Built by transformers on the meta device."""
    pytest.importorskip("torch")
    from preflight.memory.device.fit.make import request as requested
    from preflight.tracer import models

    found = resolved(name, **SETUPS[0])
    if isinstance(found, Unknown) or found.workload.image_loop:
        pytest.skip("no model of transformers that is trained by itself")
    description = found.workload.wire()
    if description.get("kind") == "denoisers":
        pytest.importorskip("diffusers")
    if found.family is not None:
        task, structure = found.task, found.structure
        request = requested(found.family, task, "train", found.setup, structure, found.all_dims)
        description = request["model"]
    model = models.build(dict(description), found.setup.wire())
    assert_published(name, sum(p.numel() for p in model.parameters()))


def test_what_has_no_law_says_why() -> None:
    found = resolved("openbmb/MiniCPM-V-2_6", **SETUPS[0])
    assert isinstance(found, Unknown)
    assert "images and text" in found.words
