"""A model that nobody knows, and whose name says how large it is: a lower bound, as an assumption."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.standing import Standing

PROGRAM = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("{name}")
args = TrainingArguments("out", per_device_train_batch_size=4, bf16=True, optim="adamw_torch")
Trainer(model=model, args=args, train_dataset=rows).train()
"""
BYTES = 16
"""Of a parameter in fp32 with its gradient and AdamW's states."""


def checked(folder: Path, gpu: str | None = None) -> StudyResult:
    [batch] = batches(["train.py"], folder, from_hook=False)
    [found] = analyse(*setup(batch, CheckOptions(gpu=gpu), folder, rules=False)).studies
    return found


def test_the_states_of_a_model_that_only_its_name_sizes_are_the_least(project: Write) -> None:
    found = checked(project({"train.py": PROGRAM.format(name="some-lab/New-8B-Instruct")}))
    device = found.space.worst.estimates.device
    assert device is not None
    assert device.lower_bound
    assert device.requested.expected == 7_200_000_000 * BYTES
    assert found.space.worst.job.model.name == "some-lab/New-8B-Instruct"
    assert found.standings["model.least_parameters"] is Standing.assumed


@pytest.mark.parametrize("gpu", ["T4", "H100"])
def test_it_never_exceeds(gpu: str, project: Write) -> None:
    """A name may lie: it is neither an error nor a fit."""
    found = checked(project({"train.py": PROGRAM.format(name="some-lab/New-70B")}), gpu)
    device = found.space.worst.estimates.device
    assert device is not None
    assert device.verdict == "unknown"
    assert device.assumptions


@pytest.mark.parametrize("name", ["some-lab/New-8B-GPTQ", "some-lab/new-base"])
def test_no_size_is_no_figure(name: str, project: Write) -> None:
    found = checked(project({"train.py": PROGRAM.format(name=name)}))
    assert found.space.worst.estimates.device is None
