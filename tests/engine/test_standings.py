"""How fields are known: what does not hold, and what does."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.engine.standings import by_hand, union
from preflight.vocabulary.job import build
from preflight.vocabulary.standing import Held, Standing

TRAINER = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=4), train_dataset=rows).train()
"""
LOOP = """\
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.batch_size):
    model(**batch).loss.backward()
    optimizer.step()
"""
OWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), num_layers=3)
        self.classifier = nn.Linear(64, 2)
    def forward(self, x):
        return self.classifier(self.encoder(self.embedding(x)))
model = Classifier().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
"""
SWEEP = "program: gone.py\nmethod: grid\nparameters:\n  batch_size: {values: [2, 4]}\n"
RUN = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py"


def standing(root: Path, path: str, field: str, trust: tuple[str, ...] = ()) -> Standing | None:
    [batch] = batches([path], root, from_hook=False)
    [found] = analyse(*setup(batch, CheckOptions(gpu="T4", trust=trust), root, rules=False)).studies
    return found.standings.get(field)


@pytest.mark.parametrize(
    ("files", "field"),
    [
        # releases differ, and none is stated
        ({"train.py": TRAINER}, "train.optimizer_impl"),
        # transformers 5 loads the weights as they were saved
        ({"train.py": LOOP}, "train.precision"),
        # nobody shows the launch, or it takes its settings from a file that nobody read
        ({"train.py": TRAINER}, "parallel.strategy"),
        ({"job.sh": RUN.replace("python", "accelerate launch"), "train.py": TRAINER}, "parallel.strategy"),
        # a class of the program's own only resembles a family
        ({"train.py": OWN}, "model.architecture"),
        # the program does not know the word
        ({"job.sh": f"{RUN} --attn eager\n", "train.py": LOOP}, "train.attention"),
        # the program is not there
        ({"sweep.yaml": SWEEP}, "train.attention"),
        # a stranger may have written the law
        ({"preflight.toml": '[set]\n"model.law" = "own.law"\n', "train.py": LOOP}, "model.law"),
    ],
)  # fmt: skip
def test_what_is_assumed(files: dict[str, str], field: str, project: Write) -> None:
    path = next(name for name in files if not name.endswith(".toml"))
    assert standing(project(files), path, field) is Standing.assumed


@pytest.mark.parametrize(
    ("files", "field", "expected"),
    [
        ({"train.py": TRAINER, "requirements.txt": "transformers==4.46.0\n"}, "train.optimizer_impl", Standing.default),
        ({"train.py": LOOP, "requirements.txt": "transformers==4.46.0\n"}, "train.precision", Standing.default),
        ({"job.sh": f"{RUN}\n", "train.py": TRAINER}, "parallel.strategy", Standing.default),
        ({"train.py": LOOP}, "parallel.strategy", Standing.default),
        ({"job.sh": f"{RUN} --batch_size 8\n", "train.py": LOOP}, "train.attention", Standing.default),
        ({"job.sh": f"{RUN} --batch_size 8\n", "train.py": LOOP}, "train.batch_size", Standing.read),
        ({"job.sh": f"{RUN} --attn eager\n", "train.py": LOOP}, "parallel.trials_per_gpu", Standing.default),
    ],
)  # fmt: skip
def test_what_holds(files: dict[str, str], field: str, expected: Standing, project: Write) -> None:
    assert standing(project(files), next(iter(files)), field) is expected


def test_a_law_that_the_user_trusts_is_read(project: Write) -> None:
    root = project({"preflight.toml": '[set]\n"model.law" = "own.law"\n', "train.py": LOOP, "own.law": ""})
    assert standing(root, "train.py", "model.law", (str(root / "own.law"),)) is Standing.read


@pytest.mark.parametrize(("accepted", "expected"), [(False, Standing.assumed), (True, Standing.read)])
def test_a_job_by_hand_is_as_it_is_stated(accepted: bool, expected: Standing) -> None:
    job = build({"model.law": "own.law", "train.batch_size": 4})
    found = by_hand(job, ("model.law", "train.batch_size"), lambda path: accepted)
    assert found["model.law"].standing is expected
    assert found["train.batch_size"].standing is Standing.read
    assert found["train.attention"].standing is Standing.default
    assert "train.seq_len" not in found


def test_the_weaker_of_two_branches_counts() -> None:
    read, one, other = Held(Standing.read), Held(Standing.assumed, "a", (1,)), Held(Standing.assumed, "b", (2,))
    assert union([{"x": read}, {"x": one}])["x"] == one
    assert union([{"x": one}, {"x": read}])["x"] == one
    assert union([{"x": one}, {"x": other}])["x"].others == (1, 2)
    assert union([{"x": one}, {"x": Held(Standing.by_name)}])["x"].others == ()
