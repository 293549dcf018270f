"""What may be called "fits": first what must not, then what must."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.certainty import WORST
from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import fields
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.standing import Standing

LOOP = """\
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gpt2")
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--max_length", type=int, default=512)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained(args.model)
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=args.max_length)
model = AutoModelForCausalLM.from_pretrained(args.model).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.batch_size):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
BY_NAME = LOOP.replace("DataLoader(rows, batch_size=args.batch_size)", "loader_of(args)").replace(
    "from torch.utils.data import DataLoader", "from mine import loader_of"
)
TRAINER = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments("out", per_device_train_batch_size=SIZE)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
SWEEP = "program: train.py\nmethod: grid\nparameters:\n  batch_size: {values: [2, 4, 8]}\n  max_length: {value: 512}\n"


def judged(root: Path, path: str, gpu: str = "T4", **stated: object) -> StudyResult:
    [batch] = batches([path], root, from_hook=False)
    options = CheckOptions(gpu=gpu, set={name.replace("__", "."): value for name, value in stated.items()})  # type: ignore[misc]
    [found] = analyse(*setup(batch, options, root, rules=False)).studies
    return found


def worst(found: StudyResult) -> Estimates:
    return found.space.worst.estimates


@pytest.mark.parametrize(
    ("files", "gpu", "field", "standing"),
    [
        ({"train.py": BY_NAME}, "T4", "train.batch_size", Standing.by_name),
        ({"job.sh": JOB, "train.py": BY_NAME}, "T4", "train.batch_size", Standing.by_name),
        # nobody shows the launch: under DDP there are buckets of gradients beside the gradients
        ({"train.py": TRAINER.replace("SIZE", "14")}, "T4", "parallel.strategy", Standing.assumed),
        (
            {"job.sh": JOB.replace("python", "accelerate launch"), "train.py": TRAINER.replace("SIZE", "14")},
            "T4", "parallel.strategy", Standing.assumed,
        ),
        # nobody knows the word: it may choose the attention
        (
            {"job.sh": JOB.replace("train.py", "train.py --attn eager --batch_size 12"), "train.py": LOOP},
            "T4", "train.attention", Standing.assumed,
        ),
        # nobody finds the program: only names are known
        ({"sweep.yaml": SWEEP + "  model_name: {value: gpt2}\n"}, "A100-80GB", "model.name", Standing.by_name),
    ],
)  # fmt: skip
def test_what_is_not_certain_does_not_fit(
    files: dict[str, str], gpu: str, field: str, standing: Standing, project: Write
) -> None:
    found = judged(project(files), next(iter(files)), gpu)
    assert worst(found).verdict == "fits-if"
    assert {one.field: one.standing for one in worst(found).assumptions}.get(field) is standing
    assert all(one.why for one in worst(found).assumptions)
    counts = found.space.counts
    assert (counts.fits, counts.unsafe, counts.fits_if > 0) == (0, 0, True)
    assert found.standings[field] is standing


@pytest.mark.parametrize(
    ("files", "gpu", "stated"),
    [
        ({"train.py": LOOP}, "T4", {}),
        ({"job.sh": JOB, "train.py": LOOP}, "T4", {}),
        ({"sweep.yaml": SWEEP, "train.py": LOOP}, "T4", {}),
        # the user states what only a name suggests
        ({"train.py": BY_NAME}, "T4", {"train__batch_size": 4}),
        # whatever the launch and the release are, it fits
        ({"train.py": TRAINER.replace("SIZE", "4")}, "A100-80GB", {}),
        ({"job.sh": JOB.replace("train.py", "train.py --attn eager"), "train.py": LOOP}, "T4", {}),
    ],
)
def test_what_holds_with_the_worst_values_fits(
    files: dict[str, str], gpu: str, stated: dict[str, object], project: Write
) -> None:
    found = judged(project(files), next(iter(files)), gpu, **stated)
    assert (worst(found).verdict, worst(found).assumptions) == ("fits", ())
    assert found.space.counts.fits == found.space.combinations
    assert found.space.counts.fits_if == 0


def test_a_part_of_a_search_may_be_certain(project: Write) -> None:
    command = "program: train.py\ncommand: [python, '${program}', --attn, eager, '${args}']"
    text = SWEEP.replace("program: train.py", command).replace("8]", "12]")
    found = judged(project({"sweep.yaml": text, "train.py": LOOP}), "sweep.yaml")
    assert (found.space.counts.fits, found.space.counts.fits_if) == (2, 1)


def test_a_need_that_no_gpu_has_is_doubted(project: Write) -> None:
    found = judged(project({"train.py": LOOP.replace("default=4", "default=1_000_000")}), "train.py", "A100-80GB")
    device = worst(found).device
    assert device is not None
    assert device.verdict == "at-risk"
    assert [one.field for one in device.assumptions] == ["train.batch_size"]
    assert found.space.counts.exceeds == 0


def test_a_field_with_a_worst_value_is_a_field() -> None:
    assert set(WORST) <= set(fields())
