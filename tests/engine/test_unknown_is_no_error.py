"""What nobody knows is nobody's error: with one value unknown, no error may appear that some value of it would undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write
from thorough import sample

from preflight.engine.certainty import Certainty
from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.engine.worst_values import LEAST
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.job import Job, build, fields
from preflight.vocabulary.spelling import kind_of
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.tracing import SHIPPED_ONLY

PROGRAM = """\
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
{head}
tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=({length}))
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", dtype=({dtype}))
{adapters}
arguments = TrainingArguments(
    "out", per_device_train_batch_size=({batch}), gradient_checkpointing=({checkpointing}), bf16=({bf16}),
    optim=({optim}), dataloader_num_workers=({workers}), gradient_accumulation_steps=({steps}),
    per_device_eval_batch_size=({evaluation}), eval_strategy="steps", torch_compile=False,
)
Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows).train()
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --gres=gpu:{gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem=16G
{launch} train.py
"""
LORA = "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=8))"
USUAL = {
    "head": "", "length": "512", "dtype": "torch.float32", "batch": "8", "checkpointing": "False", "bf16": "False",
    "optim": "'adamw_torch'", "workers": "4", "steps": "1", "evaluation": "8", "adapters": "", "gpus": "1",
    "cpus": "4", "launch": "python",
}  # fmt: skip
UNKNOWN = "from_elsewhere.value"
SLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "length": (UNKNOWN, ("16",)),
    "dtype": (UNKNOWN, ("torch.bfloat16", "torch.float32")),
    "batch": (UNKNOWN, ("1",)),
    "optim": (UNKNOWN, ("'sgd'",)),
    "workers": (UNKNOWN, ("0", "2")),
    "adapters": ("from elsewhere import wrap\nmodel = wrap(model)", (LORA,)),
    "launch": ("srun $LAUNCH python", ("srun --ntasks=1 python",)),
}
BASES = {
    "full": {},
    "adapters": {"adapters": LORA, "dtype": "torch.bfloat16", "batch": "64", "length": "2048", "workers": "16"},
}


ON_THE_GPU = ("gpu-memory-exceeded", "states-exceed-gpu", "logits-exceed-gpu")
"""Rules of which one speaks for all."""


def errors(root: Path) -> set[str] | None:
    """The rules that report an error; None where the memory of the GPU is not known."""
    [batch] = batches(["job.sh"], root, from_hook=False)
    report = analyse(*setup(batch, CheckOptions(gpu="RTX 4090"), root))
    [study] = report.studies
    found = {one.rule for one in report.findings if one.severity is Severity.error}
    if study.space.worst.estimates.device is None and not found:
        return None
    return {"gpu" if name in ON_THE_GPU else name for name in found}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("slot", SLOTS)
def test_no_error_that_a_value_would_undo(slot: str, base: dict[str, str], project: Write) -> None:
    unknown, values = SLOTS[slot]

    def told(text: str) -> set[str] | None:
        said = {**USUAL, **base, slot: text}
        files = {"job.sh": SCRIPT.format(**said), "train.py": PROGRAM.format(**said)}
        return errors(project({**files, "preflight.toml": "trace = false\n"}))

    found = told(unknown)
    for value in values if found else ():
        known = told(value)
        assert known is None or found is None or found <= known, value


JOB = {
    "task": "causal-lm", "model.name": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "train.batch_size": 8,
    "train.seq_len": 2048, "data.workers": 8, "data.sample_bytes": 10**6, "data.in_memory_bytes": 10**9,
    "machine.memory_limit": 2 * 2**30, "validation.batch_size": 64, "data.validation_workers": 8,
}  # fmt: skip


def values_of(name: str) -> tuple[object, ...]:
    kind = kind_of(name)
    named = () if kind is None else (False, True) if kind.name == "bool" else kind.choices
    return (*named, *((1,) if kind is not None and kind.name in ("int", "float") else ()))


@pytest.mark.parametrize("card", sample(["RTX 4090", "T4"], 1))
def test_an_unknown_field_of_a_job_never_makes_it_exceed(card: str) -> None:
    gpu = find_gpu(card)
    job = build(dict(JOB))

    def verdicts(one: Job, certainty: Certainty) -> tuple[str, str]:
        found = certainty.estimate(one)
        return (found.device.verdict if found.device else "", found.host.verdict if found.host else "")

    estimator, wrong = Estimator(gpu, SHIPPED_ONLY), []
    for name in fields():
        if name.startswith(("machine", "model", "software", "task", "parallel.strategy")):
            continue
        open_job = possible(job, {name: None}) or job
        held = {name: Held(Standing.unknown, "nobody knows")}
        found = verdicts(open_job, Certainty(held, estimator))
        for value in (*values_of(name), *((LEAST[name],) if name in LEAST else ())):
            other = possible(job, {name: value})
            known = verdicts(other, Certainty({}, estimator)) if other is not None else found
            wrong += [
                (name, value, side)
                for side, a, b in zip(("device", "host"), found, known, strict=True)
                if a == "exceeds" and b not in ("exceeds", "unknown", "")
            ]
    assert not wrong


LOOP = """\
import argparse
import some_lib
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
args = parser.parse_args()
rows = AutoTokenizer.from_pretrained("gpt2")(texts, padding="max_length", truncation=True, max_length=512)
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32).cuda()
{line}
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.batch_size):
    model(**batch).loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "word", "sure"),
    [
        ("", "", True),
        ("some_lib.count(model)", "", True),
        ("model = some_lib.prepare(model)", "", False),  # it may checkpoint, or make adapters
        ("", "--checkpoint-layers 12", False),  # the program takes a word that nobody knows
    ],
)
def test_a_default_that_something_unread_may_replace_is_no_error(
    line: str, word: str, sure: bool, project: Write
) -> None:
    script = SCRIPT.format(**USUAL).replace("train.py", f"train.py {word}").replace("16G", "64G")
    assert errors(project({"job.sh": script, "train.py": LOOP.format(line=line)})) == ({"gpu"} if sure else set())
