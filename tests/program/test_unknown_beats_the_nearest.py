"""Settings that mean something else than they seem to, and values that a program does not decide."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD
from programs_as_text import is_unknown, read_program, values

from preflight.dialects.program import reader
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Value

MODEL = 'import transformers\nmodel = transformers.AutoModelForCausalLM.from_pretrained("gpt2")\n'
LOOP = "\nfor batch in DataLoader(data, args.batch_size, shuffle=True):\n    model(batch).loss.backward()\n"


def told(body: str, tmp_path: Path, **given: Value) -> dict[str, Value]:
    return values(read_program(HEAD + dedent(body) + LOOP, tmp_path), given)


# --- adapters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "method"),
    [("RoadConfig", "road"), ("VeraConfig", "vera"), ("PrefixTuningConfig", "prefix-tuning"), ("NewConfig", "new")],
)
def test_another_adapter_is_not_full_fine_tuning(kind: str, method: str, tmp_path: Path) -> None:
    body = f"{MODEL}from peft import get_peft_model, {kind}\nmodel = get_peft_model(model, {kind}(r=3))\n"
    found = told(body, tmp_path)
    assert (found["train.peft.method"], found["train.peft.r"]) == (method, 3)


@pytest.mark.parametrize(
    "made", ["get_peft_model(model, load())", 'PeftModel.from_pretrained(model, "a/b", is_trainable=True)']
)
def test_adapters_that_are_not_shown_are_unknown(made: str, tmp_path: Path) -> None:
    found = told(f"{MODEL}from peft import get_peft_model, PeftModel\nmodel = {made}\n", tmp_path)
    assert is_unknown(found["train.peft.method"])


def test_lora_stays_lora(tmp_path: Path) -> None:
    body = f"{MODEL}from peft import get_peft_model, LoraConfig, LoftQConfig\nc = LoftQConfig(loftq_bits=4)\n"
    found = told(body + "model = get_peft_model(model, LoraConfig(r=4, loftq_config=c))\n", tmp_path)
    assert (found["train.peft.method"], found["train.peft.r"]) == ("lora", 4)


CONFIG = f"{MODEL}from peft import get_peft_model, LoraConfig\nfrom transformers import Trainer\nc = LoraConfig(r=4)\n"


@pytest.mark.parametrize(
    ("use", "amp", "optimizer", "method"),
    [
        ("if args.amp:\n    model = get_peft_model(model, c)\n", True, "adamw", "lora"),
        ("if args.amp:\n    model = get_peft_model(model, c)\n", False, "adamw", None),
        ("Trainer(model, peft_config=c if args.amp else None)\n", False, "adamw", None),
        ("Trainer(model, peft_config=c if args.amp else None)\n", True, "adamw", "lora"),
        ("if args.amp:\n    get_peft_model(model, c)\nelif args.optimizer == 'sgd':\n    get_peft_model(model, c)\n",
         False, "sgd", "lora"),
        ("if args.amp:\n    get_peft_model(model, c)\nelif args.optimizer == 'sgd':\n    get_peft_model(model, c)\n",
         False, "adamw", None),
        ("train(model, make(c))\n", False, "adamw", "lora"),
        ("other = {'a': LoraConfig(r=9)}\nmodel = get_peft_model(model, c)\n", False, "adamw", "lora"),
        ("known = {'a': c}\nif args.amp:\n    get_peft_model(model, known[args.optimizer])\n", False, "adamw", None),
        ("known = {'a': c}\nif args.amp:\n    get_peft_model(model, known[args.optimizer])\n", True, "adamw", "lora"),
    ],
)  # fmt: skip
def test_an_adapter_is_made_where_its_configuration_is_used(
    use: str, amp: bool, optimizer: str, method: str | None, tmp_path: Path
) -> None:
    found = told(CONFIG + use, tmp_path, amp=amp, optimizer=optimizer)
    assert found.get("train.peft.method") == method
    assert found.get("train.peft.r") == (4 if method else None)


@pytest.mark.parametrize(("base", "known"), [("transformers.Trainer", False), ("trl.DPOTrainer", True)])
def test_a_trainer_of_the_project_may_hold_more_models(base: str, known: bool, tmp_path: Path) -> None:
    head, _, name = base.rpartition(".")
    body = (
        f"{MODEL}from {head} import {name}\nfrom transformers import TrainingArguments\n"
        f"class Own({name}):\n    def compute_loss(self, model, inputs):\n        return other(model, inputs)\n"
        "ref = transformers.AutoModelForCausalLM.from_pretrained('gpt2')\n"
        "Own(model=model, ref_model=ref, args=TrainingArguments('out')).train()\n"
    )
    found = values(read_program(HEAD + body, tmp_path))
    assert is_unknown(found.get("train.sequences_per_sample")) is not known
    assert is_unknown(found.get("train.copies.reference")) is not known


# --- other frameworks, and vLLM beside training -----------------------------------------------------------------------


@pytest.mark.parametrize("package", ["jax", "flax", "tensorflow", "keras"])
def test_a_program_without_torch_has_no_model_of_torch(package: str, tmp_path: Path) -> None:
    text = (
        f"import {package}, argparse\np = argparse.ArgumentParser()\np.add_argument('--model_name', default='gpt2')\n"
    )
    assert is_unknown(values(read_program(text + "p.parse_args()\n", tmp_path))["model.name"])
    assert "model.name" not in values(read_program("import torch\n" + text, tmp_path))


@pytest.mark.parametrize(
    ("made", "left"),
    [("LLM('gpt2')", 0.1), ("LLM('gpt2', gpu_memory_utilization=0.25)", 0.75)],
)
def test_vllm_in_the_same_process_takes_its_share(made: str, left: float, tmp_path: Path) -> None:
    found = told(f"{MODEL}from vllm import LLM\nllm = {made}\n", tmp_path)
    assert found["train.allocator.per_process_fraction"] == left


@pytest.mark.parametrize(("fast", "left"), [("True", 0.4), ("False", None)])
def test_unsloth_with_vllm(fast: str, left: float | None, tmp_path: Path) -> None:
    load = f"FastLanguageModel.from_pretrained('a/b', fast_inference={fast}, gpu_memory_utilization=0.6)"
    found = told(f"from unsloth import FastLanguageModel\nmodel, tok = {load}\n", tmp_path)
    assert found.get("train.allocator.per_process_fraction") == left


# --- batches ----------------------------------------------------------------------------------------------------------


def test_ppo_before_trl_0_12_runs_mini_batches(tmp_path: Path) -> None:
    body = """
        from trl import PPOConfig, PPOTrainer, AutoModelForCausalLMWithValueHead
        config = PPOConfig(model_name="gpt2", batch_size=16, mini_batch_size=4, gradient_accumulation_steps=2)
        model = AutoModelForCausalLMWithValueHead.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
        judge = PPOTrainer(config, model, None, tokenizer)
    """
    found = told(body, tmp_path)
    expected = {"train.batch_size": 4, "train.grad_accum": 2, "train.precision": "bf16", "model.name": "gpt2"}
    assert {field: found[field] for field in expected} == expected
    assert is_unknown(found["train.seq_len"])
    assert is_unknown(found["train.copies.reference"])


def test_two_branches_that_only_running_decides_are_no_batch(tmp_path: Path) -> None:
    body = """
        if choose():
            train_loader = DataLoader(data, 8, shuffle=True)
        else:
            train_loader = DataLoader(data, 16, shuffle=True)
    """
    reading = read_program(HEAD + dedent(body) + "for x in train_loader:\n    model(x).backward()\n", tmp_path)
    assert is_unknown(values(reading)["train.batch_size"])


# --- switches and defaults --------------------------------------------------------------------------------------------

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.use_checkpoint = False
    def forward(self, x):
        {}
model = Net()
model.use_checkpoint = load()
"""


def test_checkpointing_behind_a_switch_is_unknown(tmp_path: Path) -> None:
    switched = CHECKPOINTED.format("return checkpoint(f, x) if self.use_checkpoint and self.training else f(x)")
    assert is_unknown(told(switched, tmp_path)["train.gradient_checkpointing"])
    assert told(CHECKPOINTED.format("return checkpoint(f, x)"), tmp_path)["train.gradient_checkpointing"] is True


@pytest.mark.parametrize(
    ("argument", "expected"),
    [('type=int, default="8"', 8), ('type=float, default="8"', 8.0), ("type=int, default=8", 8), ('default="8"', "8")],
)
def test_a_default_that_is_text_has_the_type_of_the_argument(argument: str, expected: Value, tmp_path: Path) -> None:
    text = f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--x', {argument})\na = p.parse_args()\n"
    (parameter,) = read_program(text, tmp_path).parameters
    assert values(read_program(text, tmp_path)) is not None
    assert parameter.default.value == expected  # type: ignore[union-attr]
    assert type(parameter.default.value) is type(expected)  # type: ignore[union-attr]


@pytest.mark.parametrize("argument", ['type=int, default="x"', 'type=lambda t: t.split(","), default="1,2"'])
def test_a_default_that_the_program_converts_is_unknown(argument: str, tmp_path: Path) -> None:
    text = f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--x', {argument})\na = p.parse_args()\n"
    (parameter,) = read_program(text, tmp_path).parameters
    assert is_unknown(parameter.default.value)  # type: ignore[union-attr]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "expected"), [(None, 4), (Call("job.sh", directory="."), 2)])
def test_a_program_that_nothing_starts_reads_the_files_beside_it(
    call: Call | None, expected: int, tmp_path: Path
) -> None:
    text = f'import yaml\n{HEAD}\nc = yaml.safe_load(open("config.yaml"))\nDataLoader(data, c["n"], shuffle=True)\n'
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "train.py").write_text(text)
    (tmp_path / "runs" / "config.yaml").write_text("n: 4\n")
    (tmp_path / "config.yaml").write_text("n: 2\n")
    project = Project(tmp_path, Settings())
    assert values(reader.read(project.source("runs/train.py"), call, project))["train.batch_size"] == expected


WRAPPED = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
import elsewhere
model = AutoModelForCausalLM.from_pretrained("gpt2")
{wrap}
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=2), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("wrap", "unknown"),
    [
        ("", False),
        ("elsewhere.count(model)", False),  # gives nothing back that is trained
        ("import torch\nmodel = torch.nn.parallel.DistributedDataParallel(model)", False),
        ("def whole(m):\n    return m\nmodel = whole(model)", False),
        ("model = elsewhere.make(model, 8)", True),
        ("model = elsewhere.Tuned(base=model)", True),
        ("elsewhere.add_lora(model)", True),
    ],
)
def test_a_model_that_unread_code_wraps_may_train_a_part(wrap: str, unknown: bool, tmp_path: Path) -> None:
    found = values(read_program(WRAPPED.format(wrap=wrap), tmp_path)).get("train.peft.method")
    assert is_unknown(found) if unknown else found is None
