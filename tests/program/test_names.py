"""Spellings: what must stay without a meaning comes first."""

from __future__ import annotations

import pytest

from preflight.program.names import binding_for, field_for, of_a_device
from preflight.vocabulary.job import fields
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.values import Cause, Const, Unknown, Value, evaluate

NOTHING = [
    "global_batch_size", "total_batch_size", "trainer.effective_batch_size", "loader.global_batch_size",
    "test_batch_size", "test.batch_size", "data.test.num_workers", "replay_buffer.batch_size", "cache.workers",
    "optimizer.max_length", "scheduler.num_layers", "generation.max_length", "generate.max_length", "lr", "epochs",
    "seed", "dropout", "name", "optimizer.name", "batch_norm", "num_batches", "warmup_steps", "val_n_layer",
    "tokenizer.vocab_size", "dataset.path", "eval_steps", "eval.n_head", "graph_vocab_size", "", ".",
]  # fmt: skip


@pytest.mark.parametrize("key", NOTHING)
def test_what_could_mean_two_things_means_nothing(key: str) -> None:
    assert field_for(key, "hydra") is None


MEANINGS = [
    ("batch_size", "train.batch_size"), ("bs", "train.batch_size"), ("batch-size", "train.batch_size"),
    ("train_batch_size", "train.batch_size"), ("per_device_train_batch_size", "train.batch_size"),
    ("micro_batch_size", "train.batch_size"), ("data.batch_size", "train.batch_size"),
    ("dataloader.params.batch_size", "train.batch_size"), ("trainBatchSize", "train.batch_size"),
    ("datamodule.init_args.batch_size", "train.batch_size"), ("batch", "train.batch_size"),
    ("per_device_eval_batch_size", "validation.batch_size"), ("validation_batch_size", "validation.batch_size"),
    ("data.val.batch_size", "validation.batch_size"), ("batch_size_val", "validation.batch_size"),
    ("train.eval_batch_size", "validation.batch_size"), ("eval.train_batch_size", "train.batch_size"),
    ("val_num_workers", "data.validation_workers"), ("dataloader.params.num_workers", "data.workers"),
    ("workers", "data.workers"), ("dataloader_num_workers", "data.workers"), ("prefetch_factor", "data.prefetch"),
    ("trainer.params.accumulate_grad_batches", "train.grad_accum"),
    ("gradient_accumulation_steps", "train.grad_accum"), ("train.grad_accum", "train.grad_accum"),
    ("tok.max_length", "train.seq_len"), ("max_seq_length", "train.seq_len"), ("block_size", "train.seq_len"),
    ("eval_max_seq_length", "validation.seq_len"), ("max_target_length", "train.target_len"),
    ("img_size", "train.image_size"), ("use_gradient_checkpointing", "train.gradient_checkpointing"),
    ("model.name", "model.name"), ("model_name_or_path", "model.name"), ("lora.r", "train.peft.r"),
    ("lora_rank", "train.peft.r"), ("eval_accumulation_steps", "validation.eval_accumulation"),
    ("n_layer", "model.config.n_layer"), ("n_embd", "model.config.n_embd"),
    ("model.num_layers", "model.config.num_hidden_layers"), ("d_model", "model.config.hidden_size"),
    ("nhead", "model.config.num_attention_heads"), ("n_kv_heads", "model.config.num_key_value_heads"),
    ("dim_feedforward", "model.config.intermediate_size"), ("vocab_size", "model.config.vocab_size"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "field"), MEANINGS)
def test_usual_spellings(key: str, field: str) -> None:
    assert field_for(key, "hydra") == field


def test_every_meaning_is_a_field_of_the_job() -> None:
    known = set(fields())
    for _, field in MEANINGS:
        assert field in known or field.startswith("model.config.")


@pytest.mark.parametrize(
    ("key", "written", "field", "value"),
    [
        ("optimizer", "AdamW", "train.optimizer", "adamw"),
        ("optimizer.name", "adamw_bnb_8bit", "train.optimizer", "adamw-8bit"),
        ("optim", "adafactor", "train.optimizer", "adafactor"),
        ("precision", 16, "train.precision", "fp16-mixed"),
        ("trainer.precision", "bf16-true", "train.precision", "bf16"),
        ("mixed_precision", "no", "train.precision", "fp32"),
        ("bs", 8, "train.batch_size", 8),
    ],
)
def test_values_are_put_into_the_jobs_spelling(key: str, written: str | int, field: str, value: object) -> None:
    binding = binding_for(key, Const(written))
    assert binding is not None
    assert (binding.field, evaluate(binding.expr), binding.rank) == (field, value, 0)


def test_an_optimizer_nobody_knows_is_unknown() -> None:
    binding = binding_for("optimizer", Const("my_own"))
    assert binding is not None
    assert isinstance(evaluate(binding.expr), Unknown)


@pytest.mark.parametrize("name", ["muon", "src.optim.Muon", "mine.AdamW"])
def test_an_optimizer_of_another_name_is_not_modelled(name: str) -> None:
    binding = binding_for("optimizer", Const(name))
    value = evaluate(binding.expr) if binding is not None else None
    assert isinstance(value, Unknown)
    assert value.cause is Cause.not_modelled  # which no default replaces


def test_the_class_of_an_optimizer_of_torch() -> None:
    binding = binding_for("optimizer._target_", Const("torch.optim.SGD"))
    assert binding is not None
    assert evaluate(binding.expr) == "sgd"


@pytest.mark.parametrize("name", ["small", "unet", "Base"])
def test_a_plain_word_is_no_model_of_the_hub(name: str) -> None:
    assert binding_for("model.name", Const(name)) is None


def test_the_id_of_a_run_is_no_model_of_the_hub() -> None:
    assert binding_for("model_id", Const("exchange_96_96")) is None
    assert binding_for("model_id", Const("org/model_v2")) is not None


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "meta-llama/Llama-2-7b-hf"])
def test_an_id_of_the_hub_is_one(name: str) -> None:
    binding = binding_for("model.name", Const(name))
    assert binding is not None
    assert binding.field == "model.name"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("micro_train_batch_size", True),
        ("train.micro_batch_size", True),
        ("per_device_batch_size", True),
        ("mbs", True),
        ("train_batch_size", False),
        ("batch_size", False),
        ("", False),
    ],
)
def test_names_of_what_one_device_gets(key: str, expected: bool) -> None:
    assert of_a_device(key) is expected


def test_a_name_without_meaning_binds_nothing() -> None:
    assert binding_for("learning_rate", Const(1e-3)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("freeze_backbone", False), ("freeze_layers", 0), ("freeze_layers", None), ("frozen_epochs", 3),
        ("freeze_bn", True), ("unfreeze_epoch", 5), ("test.freeze_backbone", True), ("freezer", True),
    ],
)  # fmt: skip
def test_names_that_freeze_nothing_for_the_whole_training(key: str, value: Value) -> None:
    found = binding_for(key, Const(value))
    assert found is None or found.field != "train.frozen"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("freeze_layers", True), ("freeze_backbone", True), ("unfreeze_last_n", 2), ("linear_probe", True),
        ("model.freeze_encoder", True), ("model.backbone.frozen", True), ("num_frozen_layers", 4), ("freeze", "1,2"),
    ],
)  # fmt: skip
def test_names_that_freeze_parts_make_them_unknown(key: str, value: Value) -> None:
    found = binding_for(key, Const(value))
    assert found is not None
    assert (found.field, found.rank) == ("train.frozen", Rank.by_name)
    assert isinstance(evaluate(found.expr), Unknown)
