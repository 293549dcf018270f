"""FSDP's and DeepSpeed's settings wherever people write them: arguments, objects, environment, files."""

from __future__ import annotations

from pathlib import Path

import pytest
from argument_files import place, read
from programs_as_text import is_unknown, read_program, text_at, values

from preflight.frameworks.fsdp import fsdp_settings
from preflight.vocabulary.reading import Call, Launch
from preflight.vocabulary.values import Const, Expr, Value, evaluate

TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", {arguments})
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args).train()
"""
LIGHTNING = """
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy

trainer = Trainer(devices=4, strategy={strategy})
trainer.fit(model)
"""
OPTIONS = "parallel.options."


def trained(root: Path, arguments: str) -> dict[str, Value]:
    return values(read_program(TRAINER.format(arguments=arguments), root))


def settings(given: dict[str, Value], version: int | None = 1) -> dict[str, Value]:
    exprs: dict[str, Expr] = {name: Const(value) for name, value in given.items()}
    found = sorted(fsdp_settings(exprs, version), key=lambda b: b.rank)
    return {b.field.removeprefix(OPTIONS): evaluate(b.expr) for b in found}


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"fsdp_sharding_strategy": "SHARD_GRAD_OP"}, "reshard_after_forward", False),
        ({"fsdp_sharding_strategy": 1}, "reshard_after_forward", True),
        ({"fsdp_sharding_strategy": "NO_SHARD"}, "parallel.strategy", "ddp"),
        ({"fsdp_reshard_after_forward": "false"}, "reshard_after_forward", False),
        ({"fsdp_backward_prefetch": "BACKWARD_POST"}, "backward_prefetch", "backward_post"),
        ({}, "backward_prefetch", "none"),
        ({"fsdp_version": "2"}, "fsdp_version", 2),
        ({"fsdp_offload_params": True}, "parallel.offload", "parameters"),
        ({"cpu_offload": "true"}, "parallel.offload", "parameters"),
        ({"fsdp_activation_checkpointing": True}, "train.gradient_checkpointing", True),
        ({"fsdp_activation_checkpointing_offload": True}, "train.activation_offload", True),
    ],
)
def test_settings_of_fsdp(given: dict[str, Value], field: str, value: Value) -> None:
    assert settings(given)[field] == value


def test_fsdp_2_prefetches_by_itself_and_a_no_says_nothing() -> None:
    assert "backward_prefetch" not in settings({"fsdp_version": 2})
    assert "train.gradient_checkpointing" not in settings({"fsdp_activation_checkpointing": False})
    assert is_unknown(settings({"fsdp_sharding_strategy": "HYBRID_SHARD"})["shard_group"])


def test_fsdp_of_the_trainer(tmp_path: Path) -> None:
    text = TRAINER.format(
        arguments='bf16=True, fsdp="shard_grad_op auto_wrap offload", '
        'fsdp_config={"version": 1, "backward_prefetch": "backward_pre", "limit_all_gathers": True}'
    )
    reading = read_program(text, tmp_path)
    found = values(reading)
    assert (found["parallel.strategy"], found["parallel.offload"]) == ("fsdp", "parameters")
    assert (found[f"{OPTIONS}fsdp_version"], found[f"{OPTIONS}reshard_after_forward"]) == (1, False)
    assert (found[f"{OPTIONS}param_dtype"], found[f"{OPTIONS}reduce_dtype"]) == ("bf16", "bf16")
    assert text_at(reading, f"{OPTIONS}backward_prefetch", tmp_path) == '"backward_pre"'


@pytest.mark.parametrize(("pin", "version"), [("4.50.0", 1), ("5.23.0", 2), (None, None)])
def test_which_fsdp_the_release_means(pin: str | None, version: int | None, tmp_path: Path) -> None:
    if pin is not None:
        (tmp_path / "requirements.txt").write_text(f"transformers=={pin}\n")
    assert trained(tmp_path, 'fsdp="full_shard"').get(f"{OPTIONS}fsdp_version") == version


def test_no_fsdp_and_deepspeed_in_place(tmp_path: Path) -> None:
    assert "parallel.strategy" not in trained(tmp_path, 'fsdp=""')
    text = 'deepspeed={"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "optimizer": {"type": "AdamW"}}'
    found = trained(tmp_path, text)
    assert (found["parallel.strategy"], found[f"{OPTIONS}reduce_bucket_size"]) == ("zero3", "auto")
    assert found["train.optimizer_impl"] == "fused"


def test_deepspeeds_settings_have_places_of_their_own(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 2e8, "overlap_comm": false}}'
    reading = read("ds.json", text, tmp_path)
    assert place(reading, f"{OPTIONS}reduce_bucket_size", tmp_path) == "2e8"
    assert place(reading, f"{OPTIONS}overlap_comm", tmp_path) == "false"
    assert place(reading, "parallel.strategy", tmp_path) == "3"


ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: 1
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_offload_params: false
  fsdp_activation_checkpointing: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
dynamo_config:
  dynamo_backend: INDUCTOR
"""


def test_accelerates_file(tmp_path: Path) -> None:
    reading = read("acc.yaml", ACCELERATE, tmp_path)
    found = values(reading)
    assert (found["parallel.strategy"], found["parallel.ranks_per_node"]) == ("fsdp", 8)
    assert (found[f"{OPTIONS}shard_group"], found[f"{OPTIONS}param_dtype"]) == (8, "bf16")
    assert (found["train.gradient_checkpointing"], found["train.compile"]) == (True, True)
    assert "parallel.offload" not in found
    assert place(reading, f"{OPTIONS}reshard_after_forward", tmp_path) == "HYBRID_SHARD"


def test_a_file_of_fsdps_settings_is_followed(tmp_path: Path) -> None:
    (tmp_path / "fsdp.json").write_text('{"transformer_layer_cls_to_wrap": ["Block"], "version": 2}')
    reading = read_program(TRAINER.format(arguments='fsdp=True, fsdp_config="fsdp.json"'), tmp_path)
    assert [(link.kind, link.target) for link in reading.links] == [("config", "fsdp.json")]
    found = read("fsdp.json", (tmp_path / "fsdp.json").read_text(), tmp_path)
    assert values(found)[f"{OPTIONS}fsdp_version"] == 2


def test_flags_of_accelerate_launch(tmp_path: Path) -> None:
    environment: dict[str, Expr] = {
        "ACCELERATE_USE_FSDP": Const("true"), "FSDP_OFFLOAD_PARAMS": Const("true"), "FSDP_VERSION": Const("2"),
        "ACCELERATE_DYNAMO_BACKEND": Const("no"),
    }  # fmt: skip
    call = Call("run.sh", (), {}, Launch("accelerate", total_ranks=Const(4), environment=environment))
    found = values(read_program(TRAINER.format(arguments="bf16=True"), tmp_path, call))
    assert (found["parallel.strategy"], found["parallel.offload"]) == ("fsdp", "parameters")
    assert found[f"{OPTIONS}fsdp_version"] == 2
    assert "train.compile" not in found


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ('FSDPStrategy(sharding_strategy="SHARD_GRAD_OP", activation_checkpointing_policy={Block})',
         {"strategy": "fsdp", "options.reshard_after_forward": False, "options.fsdp_version": 1}),
        ("FSDPStrategy(cpu_offload=True)", {"strategy": "fsdp", "offload": "parameters"}),
        ("DeepSpeedStrategy(stage=3, offload_optimizer=True)",
         {"strategy": "zero3", "offload": "optimizer", "options.reduce_bucket_size": 200_000_000}),
        ("DeepSpeedStrategy(stage=3, offload_parameters=True)", {"strategy": "zero3", "offload": "parameters"}),
        ("DeepSpeedStrategy(stage=2, offload_optimizer=True, offload_parameters=True)",
         {"strategy": "zero2", "offload": "optimizer"}),
        ("DDPStrategy(gradient_as_bucket_view=True)", {"strategy": "ddp", "options.gradient_as_bucket_view": True}),
        ('"deepspeed_stage_3_offload"', {"strategy": "zero3", "offload": "parameters"}),
        ('"deepspeed_stage_2_offload"', {"strategy": "zero2", "offload": "optimizer"}),
        ('"fsdp_cpu_offload"', {"strategy": "fsdp", "offload": "parameters"}),
    ],
)  # fmt: skip
def test_lightnings_strategies(strategy: str, expected: dict[str, Value], tmp_path: Path) -> None:
    found = values(read_program(LIGHTNING.format(strategy=strategy), tmp_path))
    assert {name: found[f"parallel.{name}"] for name in expected} == expected


WRAPPED = """
import torch
from torch.distributed.fsdp import (
    BackwardPrefetch, CPUOffload, CPUOffloadPolicy, FullyShardedDataParallel as FSDP, MixedPrecision,
    MixedPrecisionPolicy, ShardingStrategy, fully_shard,
)
{line}
for batch in loader:
    model(batch).sum().backward()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model = FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
         {"options.reshard_after_forward": False, "options.fsdp_version": 1}),
        ("model = FSDP(model, sharding_strategy=ShardingStrategy.NO_SHARD)", {"strategy": "ddp"}),
        ("model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))", {"offload": "parameters"}),
        ("model = FSDP(model, backward_prefetch=BackwardPrefetch.BACKWARD_POST)",
         {"options.backward_prefetch": "backward_post"}),
        ("mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
         "model = FSDP(model, mixed_precision=mixed)", {"options.param_dtype": "bf16", "options.reduce_dtype": "fp32"}),
        ("fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16), reshard_after_forward=False)",
         {"options.param_dtype": "bf16", "options.reshard_after_forward": False, "options.fsdp_version": 2}),
        ("fully_shard(model, offload_policy=CPUOffloadPolicy())", {"strategy": "fsdp", "offload": "parameters"}),
    ],
)  # fmt: skip
def test_objects_that_wrappers_are_given(line: str, expected: dict[str, Value], tmp_path: Path) -> None:
    found = values(read_program(WRAPPED.format(line=line), tmp_path))
    assert {name: found[f"parallel.{name}"] for name in expected} == expected


def test_lightnings_checkpointing_of_layers(tmp_path: Path) -> None:
    text = LIGHTNING.format(strategy="FSDPStrategy(activation_checkpointing_policy={Block})")
    assert values(read_program(text, tmp_path))["train.gradient_checkpointing"] is True
    assert "train.gradient_checkpointing" not in values(read_program(LIGHTNING.format(strategy='"fsdp"'), tmp_path))


@pytest.mark.parametrize(("pin", "saves"), [("4.28.1", "gathered"), ("4.31.0", None), (None, None)])
def test_how_the_trainer_writes_sharded_weights(pin: str | None, saves: str | None, tmp_path: Path) -> None:
    if pin is not None:
        (tmp_path / "requirements.txt").write_text(f"transformers=={pin}\n", encoding="utf-8")
    assert trained(tmp_path, 'fsdp="full_shard auto_wrap"').get("train.saves") == saves
