"""Files of arguments: which kind a file is, and what it says."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import is_unknown, values

from preflight.frameworks import reader as transformers_args
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Reading
from preflight.vocabulary.settings import Settings

SILENT = {
    "a compose file": ("x.yaml", "services:\n  trainer:\n    image: x\n"),
    "a package": ("package.json", '{"name": "trainer", "version": "1"}'),
    "a list": ("x.yaml", "- per_device_train_batch_size\n"),
    "a Hydra tree": ("x.yaml", "trainer:\n  devices: 2\nmodel:\n  name: x\n"),
    "broken": ("x.yaml", "per_device_train_batch_size: [1\n"),
    "one key alone": ("x.yaml", "per_device_train_batch_size: 4\n"),
}


def read(name: str, text: str, root: Path) -> Reading:
    (root / name).write_text(dedent(text))
    project = Project(root, Settings())
    source = project.source(name)
    assert transformers_args.recognises(source, project)
    return transformers_args.read(source, None, project)


@pytest.mark.parametrize("what", SILENT)
def test_what_is_left_alone(what: str, tmp_path: Path) -> None:
    name, text = SILENT[what]
    (tmp_path / name).write_text(text)
    project = Project(tmp_path, Settings())
    assert not transformers_args.recognises(project.source(name), project)


def test_json_arguments_with_their_places(tmp_path: Path) -> None:
    text = '{"model_name_or_path": "bert-base-uncased", "per_device_train_batch_size": 32, "fp16": true}'
    reading = read("args.json", text, tmp_path)
    found = values(reading)
    assert (found["model.name"], found["train.batch_size"]) == ("bert-base-uncased", 32)
    assert found["train.precision"] == "fp16-mixed"
    (binding,) = [b for b in reading.bindings if b.field == "train.batch_size"]
    assert binding.origin is not None
    assert binding.origin.route == ("per_device_train_batch_size",)
    assert text[binding.origin.span.start : binding.origin.span.end] == "32"


def test_trl_in_yaml(tmp_path: Path) -> None:
    text = """
        model_name_or_path: meta-llama/Llama-3.2-1B
        dataset_name: x/y
        per_device_train_batch_size: 2
        output_dir: out
        packing: true
        max_length: 4096
        use_peft: true
    """
    found = values(read("sft.yaml", text, tmp_path))
    assert (found["train.seq_len"], found["train.sequences"]) == (4096, "packed")
    assert (found["train.peft.method"], found["train.peft.r"]) == ("lora", 16)
    assert is_unknown(found["train.gradient_checkpointing"])  # off before TRL 0.20
    (tmp_path / "requirements.txt").write_text("trl==0.24.0\n")
    assert values(read("sft.yaml", text, tmp_path))["train.gradient_checkpointing"] is True


def test_trls_keys_of_four_bits(tmp_path: Path) -> None:
    text = """
        model_name_or_path: Qwen/Qwen3-8B
        per_device_train_batch_size: 1
        output_dir: out
        max_length: 512
        packing: false
        load_in_4bit: true
        bnb_4bit_quant_type: fp4
        use_bnb_nested_quant: true
        dtype: bfloat16
        use_peft: true
        lora_target_modules: all-linear
        chat_template_path: x
        a_key_of_another_release: 7
    """
    found = values(read("sft.yaml", text, tmp_path))
    assert (found["train.quantization.type"], found["train.quantization.double_quant"]) == ("fp4", True)
    assert (found["train.weights_dtype"], found["train.quantization.compute_dtype"]) == ("bf16", "bf16")
    assert found["train.peft.targets"] == "all-linear"


AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: x
micro_batch_size: 2
adapter: {adapter}
optimizer: adamw_8bit
val_set_size: {validation}
deepspeed:
"""


def test_axolotl(tmp_path: Path) -> None:
    reading = read("axo.yaml", AXOLOTL.format(adapter="lora", validation=0.1), tmp_path)
    found = values(reading)
    assert reading.dialect == "axolotl"
    assert (found["train.batch_size"], found["train.seq_len"]) == (2, 512)
    assert (found["train.optimizer"], found["train.precision"]) == ("adamw-8bit", "bf16-mixed")
    assert (found["train.peft.method"], found["train.peft.r"]) == ("lora", 8)
    assert found["validation.batch_size"] == 2
    assert not reading.links


def test_axolotl_without_adapter_and_validation(tmp_path: Path) -> None:
    found = values(read("axo.yaml", AXOLOTL.format(adapter="", validation=0), tmp_path))
    assert not {"train.peft.method", "validation.batch_size"} & set(found)


def test_llamafactory(tmp_path: Path) -> None:
    text = """
        model_name_or_path: Qwen/Qwen2.5-1.5B
        stage: sft
        finetuning_type: lora
        lora_target: all
        quantization_bit: 4
        per_device_train_batch_size: 1
        gradient_accumulation_steps: 8
        bf16: true
        deepspeed: ds.json
    """
    reading = read("x.yaml", text, tmp_path)
    found = values(reading)
    assert found["train.gradient_checkpointing"] is True
    assert is_unknown(found["train.seq_len"])  # 1,024 up to 0.9.0, and 2,048 since
    assert (found["train.peft.targets"], found["train.quantization.type"]) == ("all-linear", "nf4")
    assert [link.target for link in reading.links] == ["ds.json"]
    disabled = values(read("x.yaml", dedent(text) + "disable_gradient_checkpointing: true\n", tmp_path))
    assert disabled["train.gradient_checkpointing"] is False


def test_accelerate_counts_processes_of_all_machines(tmp_path: Path) -> None:
    text = """
        compute_environment: LOCAL_MACHINE
        distributed_type: DEEPSPEED
        deepspeed_config:
          zero_stage: 3
          offload_param_device: cpu
        mixed_precision: bf16
        num_machines: 2
        num_processes: 8
    """
    reading = read("acc.yaml", text, tmp_path)
    found = values(reading)
    assert not reading.trains
    assert (found["parallel.nodes"], found["parallel.ranks_per_node"]) == (2, 4)
    assert (found["parallel.strategy"], found["parallel.offload"]) == ("zero3", "parameters")
    assert found["train.precision"] == "bf16-mixed"


@pytest.mark.parametrize("precision", ["no", "'no'", ""])
def test_accelerate_without_mixed_precision(precision: str, tmp_path: Path) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: {precision}\ntrainer: x\n"
    found = values(read("acc.yaml", text, tmp_path))
    assert found["parallel.strategy"] == "ddp"
    assert "train.precision" not in found


def test_deepspeed_leaves_auto_to_the_trainer(tmp_path: Path) -> None:
    text = """
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
         "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4}
    """
    found = values(read("ds.json", text, tmp_path))
    assert found == {"parallel.strategy": "zero2", "parallel.offload": "optimizer", "train.grad_accum": 4}


@pytest.mark.parametrize(
    ("stage", "offload", "expected"),
    [
        (3, '"offload_param": {"device": "cpu"}', "parameters"),
        (3, '"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}', "parameters"),
        (2, '"offload_param": {"device": "cpu"}', None),
        (2, '"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme"}', "optimizer"),
        (1, '"cpu_offload_param": true', None),
        (0, '"offload_optimizer": {"device": "cpu"}', None),
    ],
)
def test_deepspeed_offloads_what_its_stage_shards(
    stage: int, offload: str, expected: str | None, tmp_path: Path
) -> None:
    text = f'{{"zero_optimization": {{"stage": {stage}, {offload}}}, "train_micro_batch_size_per_gpu": 1}}'
    assert values(read("ds.json", text, tmp_path)).get("parallel.offload") == expected
    if "device" in offload:
        flat = "\n".join(f"  {name}_device: cpu" for name in ("offload_param", "offload_optimizer") if name in offload)
        text = f"num_processes: 2\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: {stage}\n{flat}\n"
        assert values(read("acc.yaml", text, tmp_path)).get("parallel.offload") == expected


def test_lightnings_command_line(tmp_path: Path) -> None:
    text = """
        trainer:
          precision: bf16-mixed
          devices: 4
          accumulate_grad_batches: 2
        model:
          class_path: mine.Model
        data:
          class_path: mine.Data
          init_args:
            batch_size: 16
            num_workers: 8
    """
    reading = read("fit.yaml", text, tmp_path)
    found = values(reading)
    assert (found["train.batch_size"], found["data.workers"]) == (16, 8)
    assert (found["train.precision"], found["train.grad_accum"]) == ("bf16-mixed", 2)
    assert found["parallel.ranks_per_node"] == 4
