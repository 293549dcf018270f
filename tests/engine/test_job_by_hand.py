"""Jobs as people write them: other spellings, short forms, whole configurations."""

from __future__ import annotations

import pytest

from preflight.engine.job_by_hand import dotted, is_job, strays
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.job import build

SPELLINGS = [
    ("train.precision", "torch.bfloat16", "bf16"),
    ("train.precision", "BF16", "bf16"),
    ("train.precision", "float16", "fp16"),
    ("train.precision", "16-mixed", "fp16-mixed"),
    ("train.precision", 16, "fp16-mixed"),
    ("train.precision", "32-true", "fp32"),
    ("train.precision", "auto", None),
    ("train.weights_dtype", "torch.float16", "fp16"),
    ("train.optimizer", "torch.optim.AdamW", "adamw"),
    ("train.optimizer", "adamw_bnb_8bit", "adamw-8bit"),
    ("train.optimizer", "PagedAdamW8bit", "paged-adamw-8bit"),
    ("train.attention", "flash_attention_2", "flash"),
    ("train.batch_size", "4", 4),
    ("train.batch_size", 4.0, 4),
    ("train.gradient_checkpointing", "true", True),
    ("train.peft.method", "PROMPT_TUNING", "prompt-tuning"),
    ("train.peft.method", "full", "none"),
    ("train.peft.targets", "q_proj, v_proj", ["q_proj", "v_proj"]),
    ("train.peft.targets", "q_proj", ["q_proj"]),
    ("train.peft.targets", "all-linear", "all-linear"),
    ("train.peft.targets", r".*\.q_proj", r".*\.q_proj"),
    ("train.quantization.type", "8bit", "int8"),
    ("parallel.strategy", "deepspeed_zero3", "zero3"),
    ("machine.gpu_memory", "24GiB", 24 * 2**30),
    ("model.parameters", "7B", 7_000_000_000),
    ("model.parameters", "1.5b", 1_500_000_000),
    ("model.architecture", "LlamaForCausalLM", "llama"),
    ("model.architecture", "GPTNeoXForCausalLM", "gpt_neox"),
    ("model.architecture", "gpt2", "gpt2"),
    ("model.architecture", "GraniteForCausalLM", "granite"),
    ("model.architecture", "Gemma3ForCausalLM", "gemma3_text"),  # its name spells another type
    ("model.architecture", "gpt-bigcode", "gpt_bigcode"),
    ("model.architecture", "SomebodysForCausalLM", "SomebodysForCausalLM"),
    ("task", "text-classification", "sequence-classification"),
]


@pytest.mark.parametrize(("field", "written", "meant"), SPELLINGS)
def test_a_value_of_another_spelling_is_the_jobs(field: str, written: object, meant: object) -> None:
    group, _, name = field.rpartition(".")
    inner: dict[str, object] = {name: written}
    for part in reversed(group.split(".") if group else []):
        inner = {part: inner}
    found = dotted(inner)
    assert found[field] == meant
    build(found)


def test_a_spelling_says_what_it_says_besides() -> None:
    fused = dotted({"train": {"optimizer": "adamw_torch_fused"}})
    assert (fused["train.optimizer"], fused["train.optimizer_impl"]) == ("adamw", "fused")
    stated = dotted({"train": {"optimizer": "adamw_torch_fused", "optimizer_impl": "foreach"}})
    assert stated["train.optimizer_impl"] == "foreach"
    assert dotted({"train": {"optimizer": "lomo"}})["train.optimizer_in_backward"] is True


def test_short_forms_mean_one_thing() -> None:
    found = dotted({"model": "gpt2", "machine": "T4", "train": {"peft": None, "quantization": "nf4"}})
    assert found == {"model.name": "gpt2", "machine.gpu": "T4", "train.quantization.type": "nf4"}
    assert dotted({"model.name": "gpt2", "train.batch_size": 2}) == {"model.name": "gpt2", "train.batch_size": 2}


def test_a_whole_config_names_its_architecture() -> None:
    assert dotted({"model": {"config": {"model_type": "bert"}}})["model.architecture"] == "bert"
    stated = {"model": {"architecture": "bert", "config": {"model_type": "other"}}}
    assert dotted(stated)["model.architecture"] == "bert"
    assert "model.architecture" not in dotted({"model": {"name": "gpt2", "config": {"n_layer": 2}}})


def test_dora_is_no_lora() -> None:
    written = {"train": {"peft": {"method": "LoRA", "r": 8, "options": {"use_dora": True}}}}
    assert dotted(written)["train.peft.method"] == "dora"


def test_qlora_needs_its_quantisation_stated() -> None:
    with pytest.raises(UsageError, match=r"train\.peft\.method.*nf4"):
        dotted({"train": {"peft": {"method": "qlora"}}})
    whole = dotted({"train": {"peft": {"method": "QLoRA"}, "quantization": {"type": "nf4"}}})
    assert whole["train.peft.method"] == "lora"


def test_what_is_no_value_stays_for_the_schema_to_refuse() -> None:
    assert dotted({"train": {"batch_size": 4.5, "precision": "fp8", "lr": 1e-3}}) == {
        "train.batch_size": 4.5, "train.precision": "fp8", "train.lr": 1e-3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "job", "stray"),
    [
        ({"model": {"name": "gpt2"}, "train": {}}, True, []),
        ({"model": "gpt2", "task": "causal-lm"}, True, []),
        ({"model.name": "gpt2", "train.batch_size": 2}, True, []),
        ({"model": {"name": "gpt2"}, "train": {}, "name": "mine"}, False, ["name"]),
        ({"task": "detect", "model": "yolov8n.pt", "data": "coco.yaml"}, False, []),
        ({"optimizer": {}, "scheduler": {}}, False, []),
    ],
)
def test_a_job_is_told_from_other_documents(document: dict[str, object], job: bool, stray: list[str]) -> None:
    assert is_job(document) is job
    assert strays(document) == stray
