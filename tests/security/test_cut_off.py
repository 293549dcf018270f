"""Programs whose important value is set behind a budget: no figure from what stood before, and the cause is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine.ask import check
from preflight.python.interpreter import Interpreter
from preflight.vocabulary.budgets import PROGRAM_STEPS, OverBudget
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Cause


def spin(indent: str) -> str:
    """More than a program may take."""
    return f"{indent}for i in range(50):\n{indent}    print(i)\n" * 9000


def cause_of(result: StudyResult) -> Cause | None:
    return None if result.unjudged is None else result.unjudged.cause


TRAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def train(batch, length=1024):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model, TrainingArguments("out", per_device_train_batch_size=batch)).train()
"""
OBJECTIVE = f"""import optuna
{TRAIN}
chosen = {{"batch": 1}}

def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-3)
{spin("    ")}
    chosen["batch"] = 512
    train(chosen["batch"])
    return lr

optuna.create_study().optimize(objective, n_trials=3)
"""
HYDRA = {
    "train.py": """import hydra
import lightning as L

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = hydra.utils.instantiate(cfg.model)
    L.Trainer(max_epochs=1).fit(model, hydra.utils.instantiate(cfg.data))

main()
""",
    "conf/config.yaml": "model:\n  _target_: parts.Net\ndata:\n  _target_: parts.Data\n  batch_size: 1\n",
    "parts.py": f"""import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")

class Data(L.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
{spin("        ")}
        self.batch_size = 512

    def train_dataloader(self):
        return DataLoader([1, 2], batch_size=self.batch_size)
""",
}
LAUNCHER = f"""import subprocess
batch = 1
{spin("")}
batch = 512
subprocess.run(["python", "train.py", "--batch", str(batch)])
"""
STARTED = f"""import argparse
{TRAIN}
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
train(parser.parse_args().batch)
"""
PROJECTS = {
    "an Optuna objective": ("tune.py", {"tune.py": OBJECTIVE}),
    "a program of Hydra": ("train.py", HYDRA),
    "a configuration of Hydra": ("conf/config.yaml", HYDRA),
    "a Python launcher": ("launch.py", {"launch.py": LAUNCHER, "train.py": STARTED}),
    "a training program": ("train.py", {"train.py": f"{TRAIN}\nbatch = 1\n{spin('')}\nbatch = 512\ntrain(batch)\n"}),
}


@pytest.mark.parametrize("kind", PROJECTS)
def test_what_is_set_behind_a_budget_is_not_its_default(tmp_path: Path, kind: str) -> None:
    named, files = PROJECTS[kind]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    outcome = check([tmp_path / named], cwd=tmp_path)
    results = [result for _, result in outcome.studies()]
    assert [cause_of(result) for result in results] == [Cause.budget]
    assert [result.space.worst.estimates.device for result in results] == [None]
    said = [(one.severity, one.message) for _, one in outcome.findings()]
    words = f"it is {PROGRAM_STEPS.over}: the program is not judged"
    assert said == [(Severity.info, words)]


def test_a_new_reader_cannot_use_what_was_read_before_the_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"train(1)\n{spin('')}train(512)\n")
    evaluator = Interpreter(Project(tmp_path, Settings()))
    with pytest.raises(OverBudget, match="over the budget of 150,000 steps of a program"):
        evaluator.run("train.py")
    with pytest.raises(OverBudget):
        evaluator.whole()


UNREACHED = """import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

BATCH_SIZE = 1

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")

    def train_dataloader(self):
        {}
        return DataLoader([1, 2], batch_size=512)

L.Trainer(max_epochs=1).fit(Net())
"""


def test_a_hook_of_a_framework_that_a_budget_cuts_off_is_no_default_either(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNREACHED.format(f"pass\n{spin('        ')}"))
    results = [result for _, result in check([tmp_path / "train.py"], cwd=tmp_path).studies()]
    assert [cause_of(result) for result in results] == [Cause.budget]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("150 nested statements", "def deep(n):\n" + "    return " + "f(" * 160 + "train(512)" + ")" * 160 + "\n"),
        ("40 functions", "".join(f"def f{n}():\n    f{n + 1}()\n" for n in range(60)) + "def f60():\n    pass\nf0()\n"),
    ],
)
def test_calls_that_are_nested_too_deeply_end_it(tmp_path: Path, what: str, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(OverBudget, match="over the budget of"):
        Interpreter(Project(tmp_path, Settings())).run("train.py")
