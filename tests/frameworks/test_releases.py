"""Which releases of transformers and TRL may be in use, and what follows for the values that nobody states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from programs_as_text import read_program, values

from preflight.frameworks.library_defaults import Use, in_use, table
from preflight.frameworks.transformers_trainer import training_arguments
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.values import Const, Expr, Unknown, Value, evaluate


def told(given: Mapping[str, Value], flavour: str, trl: str | None) -> dict[str, Value]:
    exprs: dict[str, Expr] = {name: Const(value) for name, value in given.items()}
    bindings = training_arguments(exprs, flavour, Use(), None, trl)
    return {b.field: evaluate(b.expr) for b in sorted(bindings, key=lambda b: b.rank)}


@pytest.mark.parametrize(
    ("stated", "used", "transformers", "trl"),
    [
        ((None, None), (), ("4.30.2", "5.23.0"), ("0.7.11", "1.16.0")),
        ((None, "0.24.0"), (), ("4.56.2", "5.23.0"), ("0.24.0", "0.24.0")),
        # a release of TRL needs some release of transformers
        (("4.48.3", None), (), ("4.48.3", "4.48.3"), ("0.7.11", "0.17.0")),
        ((None, None), (("SFTConfig", "max_seq_length"),), ("4.31.0", "5.23.0"), ("0.9.4", "0.19.1")),
        ((None, None), (("SFTTrainer", "max_seq_length"),), ("4.31.0", "5.23.0"), ("0.7.11", "0.12.2")),
        ((None, None), (("TrainingArguments", "evaluation_strategy"),), ("4.31.0", "4.50.3"), ("0.7.11", "0.18.2")),
        # arguments that no release takes together, or that nobody knows, say nothing
        ((None, None), (("DPOConfig", "max_target_length"), ("DPOConfig", "tools")), ("4.30.2", "5.23.0"), None),
        ((None, None), (("SFTConfig", "of_a_script"),), ("4.30.2", "5.23.0"), ("0.7.11", "1.16.0")),
    ],
)  # fmt: skip
def test_the_releases_that_may_be_in_use(
    stated: tuple[str | None, str | None],
    used: tuple[tuple[str, str], ...],
    transformers: tuple[str, str],
    trl: tuple[str, str] | None,
) -> None:
    may = in_use(*stated, frozenset(used))
    assert (may.transformers[0], may.transformers[-1]) == transformers
    assert (may.trl[0], may.trl[-1]) == (trl or ("0.7.11", "1.16.0"))


@pytest.mark.parametrize(
    ("trl", "checkpointing", "precision"),
    [("0.17.0", False, "fp32"), ("0.19.1", False, "bf16-mixed"), ("0.24.0", True, "bf16-mixed")],
)
def test_what_a_class_does_not_have_is_that_of_its_base_class(trl: str, checkpointing: bool, precision: str) -> None:
    found = told({}, "sft", trl)
    assert (found["train.gradient_checkpointing"], found["train.precision"]) == (checkpointing, precision)


def test_a_default_that_decides_the_job_is_unknown_if_the_release_is() -> None:
    found = told({}, "sft", None)
    assert isinstance(found["train.gradient_checkpointing"], Unknown)
    assert isinstance(found["train.precision"], Unknown)
    assert found["train.optimizer"] == "adamw"
    assert told({"gradient_checkpointing": False, "bf16": True}, "sft", None)["train.gradient_checkpointing"] is False


def test_other_defaults_stay_with_the_values_of_other_releases() -> None:
    found = training_arguments({}, "sft", Use())
    (kernels,) = [one for one in found if one.field == "train.optimizer_impl" and one.rank == Rank.default]
    assert kernels.others


@pytest.mark.parametrize(
    ("given", "flavour", "trl", "loss"),
    [
        # the model's patch needs labels, which these trainers do not pass
        ({"use_liger_kernel": True}, "dpo", "0.14.0", "full"),
        ({"use_liger_kernel": True}, "dpo", "0.24.0", "full"),
        ({"use_liger_kernel": True}, "orpo", "0.24.0", "full"),
        ({"use_liger_loss": True}, "dpo", "0.24.0", "fused"),
        ({"use_liger_kernel": True}, "dpo", "0.27.2", "fused"),
        ({"use_liger_kernel": True}, "grpo", "1.0.0", "fused"),
        ({"use_liger_kernel": False}, "dpo", "1.0.0", None),
        ({"use_liger_kernel": True}, "sft", "0.14.0", "fused"),
        ({"use_liger_kernel": True}, "dpo", None, Unknown),
    ],
)
def test_when_liger_computes_the_loss(
    given: dict[str, Value], flavour: str, trl: str | None, loss: str | type | None
) -> None:
    found = told(given, flavour, trl).get("train.loss")
    assert isinstance(found, Unknown) if loss is Unknown else found == loss


@pytest.mark.parametrize(
    ("flavour", "trl", "times"),
    [("dpo", None, 2), ("orpo", None, 2), ("cpo", None, 2), ("reward", None, 2), ("kto", None, 1), ("sft", None, 1),
     ("grpo", "0.16.1", 1), ("grpo", "0.14.0", 8)],
)  # fmt: skip
def test_sequences_that_go_through_the_model_together(flavour: str, trl: str | None, times: int) -> None:
    found = told({"per_device_train_batch_size": 4}, flavour, trl)
    assert (found["train.batch_size"], found.get("train.sequences_per_sample", 1)) == (4, times)


@pytest.mark.parametrize(
    ("given", "flavour", "trl", "copies"),
    [
        ({"precompute_ref_log_probs": True}, "dpo", "0.24.0", 0),
        ({"precompute_ref_log_probs": True}, "dpo", "0.29.0", 1),  # computed before, and kept
        ({"precompute_ref_log_probs": True}, "dpo", "1.2.0", 0),
        ({"precompute_ref_log_probs": True}, "dpo", None, Unknown),  # the releases differ
        ({}, "grpo", "0.17.0", 1),  # beta was 0.04
        ({}, "grpo", "0.24.0", 0),
        ({}, "grpo", None, Unknown),
        ({}, "cpo", None, None),
    ],
)
def test_reference_models_by_release(
    given: dict[str, Value], flavour: str, trl: str | None, copies: int | type | None
) -> None:
    found = told(given, flavour, trl).get("train.copies.reference")
    assert isinstance(found, Unknown) if copies is Unknown else found == copies


DPO = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import DPOConfig, DPOTrainer
model = AutoModelForCausalLM.from_pretrained("gpt2")
ref_model = AutoModelForCausalLM.from_pretrained("gpt2")
{more}
trainer = DPOTrainer(model, {reference}, args={arguments}, train_dataset=data{keywords})
trainer.train()
"""
CONFIG = 'DPOConfig("out", per_device_train_batch_size=2)'


@pytest.mark.parametrize(
    ("more", "reference", "keywords", "copies"),
    [
        ("", "ref_model", "", 1),
        ("", "None", "", 1),
        ("", "None", ", peft_config=LoraConfig(r=8)", 0),
        ("model = get_peft_model(model, LoraConfig(r=8))", "None", "", 0),
        ("model = get_peft_model(model, LoraConfig(r=8))", "ref_model", "", 1),
        ("", "None", ", peft_config=None", 1),
    ],
)
def test_the_reference_model_of_a_program(
    more: str, reference: str, keywords: str, copies: int, tmp_path: Path
) -> None:
    text = DPO.format(more=more, reference=reference, keywords=keywords, arguments=CONFIG)
    assert values(read_program(text, tmp_path))["train.copies.reference"] == copies


def test_an_older_trainer_takes_arguments_of_its_own(tmp_path: Path) -> None:
    plain = 'TrainingArguments("out", per_device_train_batch_size=2, fp16=True)'
    keywords = ", beta=0.1, max_length=700, max_prompt_length=300"
    found = values(read_program(DPO.format(more="", reference="None", keywords=keywords, arguments=plain), tmp_path))
    assert (found["train.batch_size"], found["train.seq_len"]) == (2, 700)
    assert (found["train.gradient_checkpointing"], found["train.precision"]) == (False, "fp16-mixed")
    assert found["train.copies.reference"] == 1


FLAGS = """
from transformers import AutoModelForCausalLM
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config
parser = TrlParser((SFTConfig, ModelConfig))
training_args, model_args = parser.parse_args_and_config()
training_args.model_init_kwargs = dict(torch_dtype=model_args.torch_dtype)
SFTTrainer(model=model_args.model_name_or_path, args=training_args, train_dataset=data,
           peft_config=get_peft_config(model_args)).train()
"""


def test_an_older_name_of_a_flag_counts_where_a_release_takes_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.14.0\ntransformers==4.48.3\n")
    reading = read_program(FLAGS, tmp_path)
    found = values(reading, {"max_seq_length": 20480, "torch_dtype": "bfloat16", "use_peft": False})
    assert (found["train.seq_len"], found["train.weights_dtype"]) == (20480, "bf16")
    assert found["train.gradient_checkpointing"] is False
    (tmp_path / "requirements.txt").write_text("trl==1.0.0\n")
    assert "max_seq_length" not in {one.name for one in read_program(FLAGS, tmp_path).parameters}


def test_a_class_of_the_project_takes_the_arguments_of_its_base(tmp_path: Path) -> None:
    own = "class Own(DPOTrainer):\n    pass\n"
    keywords = ", max_length=700"
    text = DPO.format(more=own, reference="ref_model", keywords=keywords, arguments=CONFIG)
    found = values(read_program(text.replace("= DPOTrainer(", "= Own("), tmp_path))
    assert (found["train.batch_size"], found["train.seq_len"], found["train.copies.reference"]) == (2, 700, 1)


@pytest.mark.parametrize(
    ("said", "oldest", "newest"),
    [
        (">=0.24.0", "0.24.0", None),
        (">=0.9,<0.12", "0.9.4", "0.11.4"),
        ("~=0.9.4", "0.9.4", "0.9.6"),
        ("^0.9.4", "0.9.4", "0.9.6"),
        (">=99", None, None),
    ],
)
def test_releases_between_bounds(said: str, oldest: str | None, newest: str | None) -> None:
    every = table()["releases"]["trl"]
    may = in_use(used=frozenset({("trl", said)})).trl
    assert (may[0], may[-1]) == (oldest or every[-1], newest or every[-1])
