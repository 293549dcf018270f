"""TrainingArguments and TRL's configurations: given values, defaults by version, evaluation, the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from programs_as_text import facts, read_program, values

from preflight.dialects.reading import Call, Word
from preflight.libraries.trainer import Use, training_arguments
from preflight.values import Const, Expr, Ref, Value, evaluate


def told(
    given: Mapping[str, Value], flavour: str = "transformers", use: Use | None = None, version: str | None = None
) -> dict[str, Value]:
    exprs: dict[str, Expr] = {name: Const(value) for name, value in given.items()}
    bindings = training_arguments(exprs, flavour, use or Use(), version)
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
    found = told({}, "sft")
    assert (found["train.gradient_checkpointing"], found["train.precision"]) == (True, "bf16-mixed")
    assert (found["train.seq_len"], found["train.sequences"]) == (1024, "bound")
    assert told({"fp16": True}, "sft")["train.precision"] == "fp16-mixed"
    assert told({"packing": True, "max_length": 4096}, "sft")["train.sequences"] == "packed"


def test_dpo_takes_two_sequences_per_pair_and_a_reference_model() -> None:
    found = told({"per_device_train_batch_size": 4}, "dpo")
    assert (found["train.batch_size"], found["train.copies.reference"]) == (8, 1)
    assert "train.copies.reference" not in told({}, "dpo", Use(peft=True))


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


def test_no_evaluation_asked_for_on_the_command_line(tmp_path: Path) -> None:
    assert "validation.batch_size" not in values(read_program(PROGRAM, tmp_path))


def test_a_deepspeed_file_on_the_command_line_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    words = (Word("--deepspeed"), Word("", Const("ds.json")))
    reading = read_program(PROGRAM, tmp_path, Call("run.sh", words))
    assert [(link.kind, link.target) for link in reading.links] == [("config", "ds.json")]


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
