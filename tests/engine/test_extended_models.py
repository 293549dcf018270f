"""A class of the program that extends a class of transformers: the model that its weights are of, as an assumption."""

from __future__ import annotations

import pytest
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.standing import Standing

PROGRAM = """\
from transformers import {base}, Trainer, TrainingArguments
class Weighted({base}):
    def __init__(self, config, weights=None):
        super().__init__(config)
        self.weights = weights
    def forward(self, input_ids=None, labels=None):
        return self.classifier(self.bert(input_ids)[1])
model = {made}
args = TrainingArguments("out", per_device_train_batch_size=4, bf16=True, optim="adamw_torch")
Trainer(model=model, args=args, train_dataset=rows).train()
"""
HEAD = "BertForSequenceClassification"
LOADED = 'Weighted.from_pretrained("bert-base-uncased", weights=[1, 2])'


def checked(project: Write, base: str, made: str) -> StudyResult:
    folder = project({"train.py": PROGRAM.format(base=base, made=made)})
    [batch] = batches(["train.py"], folder, from_hook=False)
    options = CheckOptions(gpu="H100 80GB", set={"train.seq_len": 128})
    [found] = analyse(*setup(batch, options, folder, rules=False)).studies
    return found


def test_it_is_the_model_that_it_is_loaded_from(project: Write) -> None:
    found = checked(project, HEAD, LOADED)
    job = found.space.worst.job
    assert (job.model.name, job.task) == ("bert-base-uncased", "sequence-classification")
    assert found.standings["model.name"] is Standing.assumed
    assert found.space.worst.estimates.device is not None


def test_it_never_fits_for_certain(project: Write) -> None:
    device = checked(project, HEAD, LOADED).space.worst.estimates.device
    assert device is not None
    assert device.verdict == "fits-if"
    assert "Weighted, a class of the program that extends" in " ".join(one.why for one in device.assumptions)


def test_the_class_of_the_library_beside_it_is_read(project: Write) -> None:
    found = checked(project, HEAD, LOADED.replace("Weighted", HEAD).replace(", weights=[1, 2]", ""))
    assert found.standings["model.name"] is Standing.read


@pytest.mark.parametrize("base", ["BertPreTrainedModel", "PreTrainedModel"])
def test_a_class_without_a_body_says_nothing(base: str, project: Write) -> None:
    found = checked(project, base, LOADED)
    assert found.space.worst.job.model.name is None
