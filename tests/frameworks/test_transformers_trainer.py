"""TrainingArguments and TRL's configurations: given values, defaults by version, evaluation, the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from programs_as_text import facts, is_unknown, read_program, values

from preflight.frameworks.transformers_trainer import Use, training_arguments
from preflight.vocabulary.reading import Call, Word
from preflight.vocabulary.values import Const, Expr, Ref, Value, evaluate


def told(
    given: Mapping[str, Value],
    flavour: str = "transformers",
    use: Use | None = None,
    version: str | None = None,
    trl: str | None = None,
) -> dict[str, Value]:
    exprs: dict[str, Expr] = {name: Const(value) for name, value in given.items()}
    bindings = training_arguments(exprs, flavour, use or Use(), version, trl)
    found = {b.field: evaluate(b.expr) for b in sorted(bindings, key=lambda b: b.rank)}
    return {field: value for field, value in found.items() if value is not None}


def test_nothing_given_means_the_librarys_defaults() -> None:
    found = told({})
    assert found["train.batch_size"] == 8
    assert found["train.precision"] == "fp32"
    assert found["train.optimizer_impl"] == "fused"
    assert found["data.pin_memory"] is True
    assert "validation.batch_size" not in found
    assert all(b.rank == 1 for b in training_arguments({}))


def test_defaults_by_version() -> None:
    assert told({}, version="4.57.1")["train.optimizer_impl"] == "foreach"
    assert told({}, version="5.23.0")["train.optimizer_impl"] == "fused"


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({"bf16": True}, "bf16-mixed"),
        ({"fp16": True}, "fp16-mixed"),
        ({"bf16": False, "fp16": False}, "fp32"),
        ({"bf16": True, "fp16": False}, "bf16-mixed"),
    ],
)
def test_precision(given: dict[str, Value], precision: str) -> None:
    assert told(given)["train.precision"] == precision


def test_weights_in_half_precision_without_autocast_are_pure() -> None:
    assert told({}, use=Use(base=Const("bf16")))["train.precision"] == "bf16"
    assert told({"bf16": True}, use=Use(base=Const("bf16")))["train.precision"] == "bf16-mixed"


@pytest.mark.parametrize(
    ("given", "metrics", "keeps"),
    [
        ({}, True, None),
        ({"eval_strategy": "no"}, True, None),
        ({"eval_strategy": "epoch"}, False, False),
        ({"eval_strategy": "epoch"}, True, True),
        ({"evaluation_strategy": "steps"}, True, True),
        ({"eval_strategy": "epoch", "prediction_loss_only": True}, True, False),
        ({"eval_strategy": "epoch", "batch_eval_metrics": True}, True, False),
        ({"eval_strategy": "epoch", "predict_with_generate": True}, True, False),
    ],
)
def test_when_evaluation_keeps_its_logits(given: dict[str, Value], metrics: bool, keeps: bool | None) -> None:
    found = told(given, use=Use(compute_metrics=Const(metrics)))
    assert found.get("validation.accumulates_logits") == keeps


def test_evaluation_has_a_batch_and_workers_of_its_own() -> None:
    found = told({"eval_strategy": "steps", "per_device_eval_batch_size": 64, "dataloader_num_workers": 4})
    assert (found["validation.batch_size"], found["data.validation_workers"]) == (64, 4)
    assert found["data.validation_overlaps"] is True


def test_a_parameter_stays_a_parameter() -> None:
    bindings = training_arguments({"per_device_train_batch_size": Ref("bs"), "bf16": Ref("half")})
    by_field = {binding.field: binding for binding in bindings}
    assert by_field["train.batch_size"].expr == Ref("bs")
    assert by_field["train.batch_size"].rank == 2
    assert evaluate(by_field["train.precision"].expr, {"half": Const(True)}) == "bf16-mixed"


def test_trl_checkpoints_uses_bf16_and_bounds_the_length() -> None:
    found = told({}, "sft", trl="1.0.0")
    assert (found["train.gradient_checkpointing"], found["train.precision"]) == (True, "bf16-mixed")
    assert (found["train.seq_len"], found["train.sequences"]) == (1024, "bound")
    assert told({"fp16": True}, "sft")["train.precision"] == "fp16-mixed"
    assert told({"packing": True, "max_length": 4096}, "sft")["train.sequences"] == "packed"


def test_dpo_takes_two_sequences_per_pair_and_a_reference_model() -> None:
    found = told({"per_device_train_batch_size": 4}, "dpo")
    assert (found["train.batch_size"], found["train.copies.reference"]) == (4, 1)
    assert found["train.sequences_per_sample"] == 2
    assert told({}, "dpo", Use(peft=Const(True)))["train.copies.reference"] == 0
    assert told({}, "dpo", Use(peft=Const(True), reference=Const(True)))["train.copies.reference"] == 1
    assert is_unknown(told({}, "dpo", Use(peft=Ref("use_peft")))["train.copies.reference"])


@pytest.mark.parametrize(
    ("optim", "optimizer", "at_once"),
    [
        ("lomo", "lomo", True),
        ("adalomo", "adafactor", True),
        ("galore_adamw_layerwise", "galore-adamw", True),
        ("galore_adamw", "galore-adamw", False),
        ("apollo_adamw", "apollo-adamw", False),
        ("paged_adamw_32bit", "paged-adamw", False),
        ("paged_adamw_8bit", "paged-adamw-8bit", False),
        ("lion_8bit", "lion-8bit", False),
        ("no_such_optimizer", "other", False),
    ],
)
def test_optimizers_and_when_they_step(optim: str, optimizer: str, at_once: bool) -> None:
    found = told({"optim": optim})
    assert (found["train.optimizer"], found["train.optimizer_in_backward"]) == (optimizer, at_once)


@pytest.mark.parametrize(
    ("given", "flavour", "loss"),
    [
        ({"use_liger_kernel": True}, "transformers", "fused"),
        ({"use_liger_kernel": False}, "transformers", None),
        ({"use_liger": True}, "sft", "fused"),
        ({"use_liger_loss": True}, "grpo", "fused"),
        ({"use_liger_kernel": True, "liger_kernel_config": {"fused_linear_cross_entropy": False}}, "sft", "full"),
        ({"use_liger_kernel": True}, "reward", None),
        ({"loss_type": "nll"}, "sft", "full"),
        ({}, "sft", None),
    ],
)
def test_losses_without_whole_logits(given: dict[str, Value], flavour: str, loss: str | None) -> None:
    assert told(given, flavour).get("train.loss") == loss


@pytest.mark.parametrize(
    ("given", "flavour", "kernels"),
    [
        ({"use_liger_kernel": True}, "transformers", ("liger", "norm", "rope", "mlp")),
        ({"use_liger_kernel": True}, "reward", ("liger", "norm", "rope", "mlp")),
        (
            {"use_liger_kernel": True, "liger_kernel_config": {"rope": False, "swiglu": False}},
            "transformers",
            ("liger", "norm"),
        ),
        ({"use_liger_kernel": False}, "transformers", ()),
        ({}, "transformers", None),
    ],
)
def test_what_liger_replaces(given: dict[str, Value], flavour: str, kernels: tuple[str, ...] | None) -> None:
    assert told(given, flavour).get("train.fused_kernels") == kernels


def test_ligers_kernels_are_for_language_models() -> None:
    assert "train.loss" not in told({"use_liger_kernel": True}, use=Use(task="sequence-classification"))


def test_trls_chunks_are_a_loss_of_their_own() -> None:
    bindings = training_arguments({"loss_type": Const("chunked_nll")}, "sft")
    assert any(is_unknown(evaluate(b.expr)) for b in bindings if b.field == "train.loss")
    newest = training_arguments({}, "sft", trl_version="1.8.0")
    assert any(is_unknown(evaluate(b.expr)) for b in newest if b.field == "train.loss")
    assert not [b for b in training_arguments({}, "sft", trl_version="1.6.0") if b.field == "train.loss"]


@pytest.mark.parametrize(
    ("given", "flavour", "reference"),
    [
        ({"reference_free": True}, "dpo", 1),
        ({"precompute_ref_log_probs": False}, "dpo", 1),
        ({"beta": 0.04}, "grpo", 1),
        ({"beta": 0.0}, "grpo", 0),
        ({"precompute_ref_log_probs": True}, "kto", 0),
        ({}, "orpo", None),
    ],
)
def test_reference_models(given: dict[str, Value], flavour: str, reference: int | None) -> None:
    assert told(given, flavour).get("train.copies.reference") == reference


def test_online_methods_train_on_what_they_generate() -> None:
    lengths: dict[str, Value] = {"max_prompt_length": 512, "max_completion_length": 1024}
    assert told(lengths, "grpo")["train.seq_len"] == 1536
    assert is_unknown(told({}, "ppo")["train.copies.reference"])


def test_vllm_in_the_training_process_takes_its_share() -> None:
    field = "train.allocator.per_process_fraction"
    shared: dict[str, Value] = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}
    assert told(shared, "grpo")[field] == 0.7
    assert field not in told({**shared, "vllm_mode": "server"}, "grpo")
    assert field not in told({**shared, "vllm_enable_sleep_mode": True}, "grpo")


def test_activations_that_wait_in_host_memory() -> None:
    assert told({"activation_offloading": True}, "sft")["train.activation_offload"] is True


PROGRAM = """
from dataclasses import dataclass, field
from transformers import AutoModelForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="bert-base-uncased")

def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = AutoModelForSequenceClassification.from_pretrained(model_args.model_name_or_path)
    trainer = Trainer(model=model, args=training_args, compute_metrics=lambda p: {})
    trainer.train()

if __name__ == "__main__":
    main()
"""


def test_flags_of_the_librarys_arguments(tmp_path: Path) -> None:
    reading = read_program(PROGRAM, tmp_path)
    assert facts(reading)["framework"] == "transformers-trainer"
    flags = {flag: p.name for p in reading.parameters for flag in p.flags}
    assert flags["--per_device_train_batch_size"] == flags["--per-device-train-batch-size"]
    assert values(reading)["train.batch_size"] == 8
    found = values(reading, {"per_device_train_batch_size": 64, "fp16": True, "eval_strategy": "epoch"})
    assert (found["train.batch_size"], found["train.precision"]) == (64, "fp16-mixed")
    assert found["validation.accumulates_logits"] is True
    assert found["validation.batch_size"] == 8


def test_a_trainer_that_looks_for_a_batch_by_itself(tmp_path: Path) -> None:
    text = OWN.replace('"out",', '"out", auto_find_batch_size=True,')
    assert facts(read_program(text, tmp_path))["handles_oom"] is True
    assert "handles_oom" not in facts(read_program(OWN, tmp_path))


def test_no_evaluation_asked_for_on_the_command_line(tmp_path: Path) -> None:
    assert "validation.batch_size" not in values(read_program(PROGRAM, tmp_path))


def test_a_deepspeed_file_on_the_command_line_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    words = (Word("--deepspeed"), Word("", Const("ds.json")))
    reading = read_program(PROGRAM, tmp_path, Call("run.sh", words))
    assert [(link.kind, link.target) for link in reading.links] == [("config", "ds.json")]


TRL = """
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser

args, model_args = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(
    model_args.model_name_or_path, dtype=model_args.dtype, attn_implementation=model_args.attn_implementation
)
GRPOTrainer(model=model, args=args, reward_funcs=score).train()
"""


def test_flags_that_nobody_gives_are_not_set(tmp_path: Path) -> None:
    reading = read_program(TRL, tmp_path)
    found = values(reading)
    assert "train.attention" not in found
    assert found["train.weights_dtype"] == "fp32"  # ModelConfig's default from TRL 0.27 on
    assert is_unknown(found["train.precision"])  # fp32 before TRL 0.19
    assert is_unknown(found["train.seq_len"])
    given: dict[str, Value] = {"dtype": "bfloat16", "bf16": False, "fp16": False, "max_prompt_length": 100}
    stated = values(reading, given)
    assert (stated["train.weights_dtype"], stated["train.precision"]) == ("bf16", "bf16")
    assert stated["train.seq_len"] == 612
    assert is_unknown(values(reading, {"dtype": "auto", "bf16": False, "fp16": False})["train.precision"])


OWN = """
from transformers import Trainer, TrainingArguments

class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return model(**inputs).loss

args = TrainingArguments("out", per_device_train_batch_size=2, eval_strategy="epoch")
Weighted(model=model, args=args, compute_metrics=metrics).train()
"""


def test_a_trainer_of_the_projects_own(tmp_path: Path) -> None:
    reading = read_program(OWN, tmp_path)
    assert reading.trains
    assert facts(reading)["framework"] == "transformers-trainer"
    assert values(reading)["validation.accumulates_logits"] is True


def test_arguments_that_only_inference_reads(tmp_path: Path) -> None:
    text = """
        from transformers import HfArgumentParser, TrainingArguments, pipeline
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        print(pipeline("text-generation")("Hello"))
    """
    assert not read_program(text, tmp_path).trains
