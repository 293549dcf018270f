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


RUN = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--task", default="tag")
parser.add_argument("--name")
args = parser.parse_args()
if args.task == "tag":
    from tag import trainer
else:
    from score import trainer
trainer(args).train()
"""
TRAINER = """\
import enum
from torch import nn
from transformers import AutoConfig, BertModel, BertPreTrainedModel, Trainer, TrainingArguments
class Kind(enum.Enum):
    ONE = 1,
    TWO = 2
class Prefixed(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.keys = nn.Embedding(20, 2 * config.num_hidden_layers * config.hidden_size)
        for parameter in self.bert.parameters():
            parameter.requires_grad = False
    def forward(self, input_ids, keys=None):
        keys = self.keys(input_ids)
        return self.bert(input_ids, GIVEN=keys)
CLASSES = {"bert": {Kind.ONE: Prefixed, Kind.TWO: None}, "roberta": {Kind.ONE: None, Kind.TWO: None}}
def trainer(args):
    config = AutoConfig.from_pretrained(args.name)
    model = CLASSES[config.model_type][Kind.ONE].from_pretrained(args.name, config=config)
    given = TrainingArguments("out", per_device_train_batch_size=SIZE, optim="adamw_torch")
    return Trainer(model=model, args=given, train_dataset=rows)
"""
BY_TYPE = {
    "run.sh": "python run.py --task tag --name bert-base-uncased\n",
    "run.py": RUN,
    "tag.py": TRAINER.replace("SIZE", "4").replace("GIVEN", "past_key_values"),
    "score.py": TRAINER.replace("SIZE", "64").replace("GIVEN", "past_key_values"),
}


def by_type(project: Write, gpu: str = "H100 80GB", **files: str) -> StudyResult:
    folder = project({**BY_TYPE, **{f"{name}.py" if name != "run" else "run.sh": text for name, text in files.items()}})
    [batch] = batches(["run.sh"], folder, from_hook=False)
    [found] = analyse(*setup(batch, CheckOptions(gpu=gpu, set={"train.seq_len": 128}), folder, rules=False)).studies
    return found


def test_a_class_chosen_by_the_type_of_the_model_in_a_module_chosen_by_a_flag(project: Write) -> None:
    found = by_type(project)
    job = found.space.worst.job
    assert (job.model.name, job.train.batch_size) == ("bert-base-uncased", 4)
    device = found.space.worst.estimates.device
    assert device is not None
    assert device.verdict == "fits-if"
    assert "Prefixed" in " ".join(one.why for one in device.assumptions)
    other = by_type(project, run="python run.py --task score --name bert-base-uncased\n")
    assert other.space.worst.job.train.batch_size == 64


def test_keys_that_a_caller_gives_are_no_prefix(project: Write) -> None:
    plain = TRAINER.replace("SIZE", "4").replace("        keys = self.keys(input_ids)\n", "")
    found = by_type(project, tag=plain.replace("GIVEN", "past_key_values"))
    assert found.standings["model.name"] is Standing.read
    device = found.space.worst.estimates.device
    assert device is not None
    assert device.verdict == "fits"


def test_frozen_parts_that_are_not_known_never_exceed(project: Write) -> None:
    found = by_type(project, "T4", tag=BY_TYPE["score.py"].replace("=64", "=512"))
    device = found.space.worst.estimates.device
    assert found.standings["train.frozen"] is Standing.unknown
    assert device is not None
    assert device.verdict == "unknown"


@pytest.mark.parametrize("name", ["somebody/private", "timm/resnet50.a1_in1k"])
def test_a_type_that_is_not_known_chooses_no_class(name: str, project: Write) -> None:
    found = by_type(project, run=f"python run.py --name {name}\n")
    assert found.space.worst.estimates.device is None
