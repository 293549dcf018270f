"""From a Change back to text: what has no way back stays as it is, what has one is edited there and nowhere else."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight.fixes.edits import edits_in
from preflight.study.build import build
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import splice

ARGPARSE = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)  # per GPU
parser.add_argument("--accum", type=int, default=None)
parser.add_argument("--workers", type=int, default=2 ** 3)
parser.add_argument("--seq_len", type=int, default=512)
args = parser.parse_args()

model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, batch_size=args.batch_size * 2, num_workers=args.workers, prefetch_factor=4)
for x in loader:
    model(x).sum().backward()
    opt.step()
    opt.zero_grad()
"""

SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size:
    values: [8, 16, 64]   # larger is faster
  workers:
    value: 16
  seq_len:
    min: 128
    max: 1024
"""

HYDRA = """\
import hydra
import torch
from torch.utils.data import DataLoader

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = torch.nn.Linear(8, 8).cuda()
    opt = torch.optim.AdamW(model.parameters())
    for x in DataLoader(data, batch_size=cfg.batch_size, num_workers=cfg.workers):
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()

if __name__ == "__main__":
    main()
"""
CONFIG = "batch_size: 16  # per GPU\nworkers: 4\n"

OPTUNA = """\
import optuna
import torch
from torch.utils.data import DataLoader

def objective(trial):
    batch = trial.suggest_categorical("batch", [8, 16, 64])
    workers = trial.suggest_int("workers", 1, 16)
    model = torch.nn.Linear(8, 8).cuda()
    opt = torch.optim.AdamW(model.parameters())
    for x in DataLoader(data, batch_size=batch, num_workers=workers):
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()

optuna.create_study().optimize(objective)
"""

TRAINER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=64,  # fits an A100
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

SBATCH = """\
#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --mem=256G  # per node
python train.py --batch_size=96
"""


def read(files: Mapping[str, str], root: Path, given: str | None = None) -> tuple[Study, Project]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    project = Project(root, Settings())
    studies, skipped = build([given or next(iter(files))], project)
    assert len(studies) == 1, skipped
    return studies[0], project


def changed(files: Mapping[str, str], change: Change, root: Path) -> dict[str, list[str]] | None:
    """Lines that the edits take out and put in, by file; None: no way back."""
    study, project = read(files, root)
    edits = edits_in(change, study, project)
    if edits is None:
        return None
    found = {}
    for path in dict.fromkeys(edit.path for edit in edits):
        old = project.source(path).text
        new = splice(old, [edit for edit in edits if edit.path == path])
        lines = difflib.ndiff(old.splitlines(), new.splitlines())
        found[path] = [line for line in lines if line[0] in "+-"]
    return found


@pytest.mark.parametrize(
    ("files", "change"),
    [
        ({"train.py": ARGPARSE}, Change("train.gradient_checkpointing", True)),  # no parameter of that meaning
        ({"train.py": ARGPARSE}, Change("train.precision", "bf16-mixed")),
        ({"train.py": ARGPARSE}, Change("train.batch_size", 33)),  # twice a whole number is even
        ({"train.py": ARGPARSE}, Change("request.memory", 2**30)),  # nobody asks SLURM for anything
        ({"sweep.yaml": SWEEP, "train.py": ARGPARSE}, Change("train.batch_size", 8)),  # an axis has no one value
        ({"sweep.yaml": SWEEP, "train.py": ARGPARSE}, Change("batch_size", keep=())),
        ({"sweep.yaml": SWEEP, "train.py": ARGPARSE}, Change("nothing", keep=(1,))),
        ({"run.sbatch": SBATCH, "train.py": ARGPARSE}, Change("request.memory_per_gpu", 2**30)),  # excluded by --mem
    ],
)
def test_no_way_back(files: Mapping[str, str], change: Change, tmp_path: Path) -> None:
    assert changed(files, change, tmp_path) is None


@pytest.mark.parametrize(
    ("files", "change"),
    [
        ({"train.py": ARGPARSE}, Change("train.batch_size", 64)),
        ({"train.py": ARGPARSE}, Change("data.workers", 8)),
        ({"sweep.yaml": SWEEP, "train.py": ARGPARSE}, Change("batch_size", keep=(8, 16, 64))),
    ],
)
def test_said_already(files: Mapping[str, str], change: Change, tmp_path: Path) -> None:
    assert changed(files, change, tmp_path) == {}


@pytest.mark.parametrize(
    ("files", "change", "expected"),
    [
        pytest.param(
            {"train.py": ARGPARSE},
            Change("train.batch_size", 16),
            {
                "train.py": [
                    '- parser.add_argument("--batch_size", type=int, default=32)  # per GPU',
                    '+ parser.add_argument("--batch_size", type=int, default=8)  # per GPU',
                ]
            },
            id="a default, through a product",
        ),
        pytest.param(
            {"train.py": ARGPARSE},
            Change("data.workers", 4),
            {
                "train.py": [
                    '- parser.add_argument("--workers", type=int, default=2 ** 3)',
                    '+ parser.add_argument("--workers", type=int, default=4)',
                ]
            },
            id="arithmetic of literals",
        ),
        pytest.param(
            {"run.sh": "#!/bin/bash\npython train.py --batch_size 96 \\\n  --seq_len=512\n", "train.py": ARGPARSE},
            Change("train.batch_size", 64),
            {"run.sh": ["- python train.py --batch_size 96 \\", "+ python train.py --batch_size 32 \\"]},
            id="a word of a script",
        ),
        pytest.param(
            {"run.sh": "#!/bin/bash\nB=96\npython train.py --batch_size=${B} > log\n", "train.py": ARGPARSE},
            Change("train.batch_size", 64),
            {"run.sh": ["- B=96", "+ B=32"]},
            id="a variable of a script",
        ),
        pytest.param(
            {"sweep.yaml": SWEEP, "train.py": ARGPARSE},
            Change("batch_size", keep=(8, 16)),
            {
                "sweep.yaml": [
                    "-     values: [8, 16, 64]   # larger is faster",
                    "+     values: [8, 16]   # larger is faster",
                ]
            },
            id="values of a sweep",
        ),
        pytest.param(
            {"sweep.yaml": SWEEP, "train.py": ARGPARSE},
            Change("data.workers", 4),
            {"sweep.yaml": ["-     value: 16", "+     value: 4"]},
            id="a constant of a sweep",
        ),
        pytest.param(
            {"sweep.yaml": SWEEP, "train.py": ARGPARSE},
            Change("seq_len", keep=(128, 512)),
            {"sweep.yaml": ["-     max: 1024", "+     max: 512"]},
            id="a range of a sweep",
        ),
        pytest.param(
            {"run.sh": "python train.py workers=8\n", "train.py": HYDRA, "conf/config.yaml": CONFIG},
            Change("train.batch_size", 8),
            {"conf/config.yaml": ["- batch_size: 16  # per GPU", "+ batch_size: 8  # per GPU"]},
            id="a value that Hydra composes",
        ),
        pytest.param(
            {"run.sh": "python train.py workers=8\n", "train.py": HYDRA, "conf/config.yaml": CONFIG},
            Change("data.workers", 2),
            {"run.sh": ["- python train.py workers=8", "+ python train.py workers=2"]},
            id="an override",
        ),
        pytest.param(
            {"run.sh": "python train.py -m batch_size=8,16,64\n", "train.py": HYDRA, "conf/config.yaml": CONFIG},
            Change("batch_size", keep=(8, 16)),
            {"run.sh": ["- python train.py -m batch_size=8,16,64", "+ python train.py -m batch_size=8,16"]},
            id="a swept override",
        ),
        pytest.param(
            {"tune.py": OPTUNA},
            Change("batch", keep=(8, 16)),
            {
                "tune.py": [
                    '-     batch = trial.suggest_categorical("batch", [8, 16, 64])',
                    '+     batch = trial.suggest_categorical("batch", [8, 16])',
                ]
            },
            id="choices of Optuna",
        ),
        pytest.param(
            {"tune.py": OPTUNA.replace("[8, 16, 64]", "(8, 16, 64)")},
            Change("batch", keep=(8,)),
            {
                "tune.py": [
                    '-     batch = trial.suggest_categorical("batch", (8, 16, 64))',
                    '+     batch = trial.suggest_categorical("batch", (8,))',
                ]
            },
            id="a tuple of one keeps its comma",
        ),
        pytest.param(
            {"tune.py": OPTUNA},
            Change("workers", keep=(1, 8)),
            {
                "tune.py": [
                    '-     workers = trial.suggest_int("workers", 1, 16)',
                    '+     workers = trial.suggest_int("workers", 1, 8)',
                ]
            },
            id="a range of Optuna",
        ),
        pytest.param(
            {"train.py": TRAINER},
            Change("train.batch_size", 16),
            {
                "train.py": [
                    "-     per_device_train_batch_size=64,  # fits an A100",
                    "+     per_device_train_batch_size=16,  # fits an A100",
                ]
            },
            id="a keyword",
        ),
        pytest.param(
            {"train.py": TRAINER},
            Change("train.grad_accum", 4),
            {"train.py": ["+     gradient_accumulation_steps=4,"]},
            id="a keyword that is not there yet",
        ),
        pytest.param(
            {"train.py": ARGPARSE},
            Change("data.prefetch", 2),
            {
                "train.py": [
                    "- loader = DataLoader(data, batch_size=args.batch_size * 2, "
                    "num_workers=args.workers, prefetch_factor=4)",
                    "+ loader = DataLoader(data, batch_size=args.batch_size * 2, "
                    "num_workers=args.workers, prefetch_factor=2)",
                ]
            },
            id="a literal in a call",
        ),
        pytest.param(
            {"train.py": ARGPARSE},
            Change("data.persistent_workers", True),
            {
                "train.py": [
                    "- loader = DataLoader(data, batch_size=args.batch_size * 2, "
                    "num_workers=args.workers, prefetch_factor=4)",
                    "+ loader = DataLoader(data, batch_size=args.batch_size * 2, "
                    "num_workers=args.workers, prefetch_factor=4, persistent_workers=True)",
                ]
            },
            id="a loader's keyword that is not there yet",
        ),
        pytest.param(
            {"run.sbatch": SBATCH, "train.py": ARGPARSE},
            Change("request.memory", 400 * 2**30),
            {"run.sbatch": ["- #SBATCH --mem=256G  # per node", "+ #SBATCH --mem=400G  # per node"]},
            id="the request",
        ),
        pytest.param(
            {"run.sbatch": SBATCH.replace("#SBATCH --mem=256G  # per node\n", ""), "train.py": ARGPARSE},
            Change("request.memory", 400 * 2**30),
            {"run.sbatch": ["+ #SBATCH --mem=400G"]},
            id="a request that is not there yet",
        ),
    ],
)
def test_way_back(files: Mapping[str, str], change: Change, expected: dict[str, list[str]], tmp_path: Path) -> None:
    assert changed(files, change, tmp_path) == expected


FLAGGED = ARGPARSE.replace(
    'parser.add_argument("--accum", type=int, default=None)',
    'parser.add_argument("--no-pin", dest="pin", action="store_false")',
).replace("prefetch_factor=4", "pin_memory=args.pin")


def test_a_flag_of_the_programs_own(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py --batch_size 96 > log.txt\n", "train.py": FLAGGED}
    assert changed(files, Change("data.pin_memory", False), tmp_path) == {
        "run.sh": [
            "- python train.py --batch_size 96 > log.txt",
            "+ python train.py --batch_size 96 --no-pin > log.txt",
        ]
    }


def test_line_endings_stay(tmp_path: Path) -> None:
    files = {"run.sbatch": SBATCH.replace("--mem=256G  # per node", "--time=60"), "train.py": ARGPARSE}
    study, project = read(files, tmp_path)
    (edit,) = edits_in(Change("request.memory", 2**34), study, project) or ()
    new = splice(project.source("run.sbatch").text, [edit])
    assert new.splitlines()[3:5] == ["#SBATCH --mem=16G", "python train.py --batch_size=96"]


def test_settings_of_the_command_line_are_not_edited(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    project = Project(tmp_path, Settings())
    studies, _ = build(["train.py"], project, {"train.batch_size": 128})
    assert edits_in(Change("train.batch_size", 8), studies[0], project) is None
