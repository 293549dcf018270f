"""Trainer, Lightning and Accelerate in two minor releases each: recorded, halved, and their checkpoints are known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

import preflight.guard as package
from preflight.vocabulary.watched import WatchedRank
from preflight.watch.checkpoints import checkpoints
from preflight.watch.records import ranks_of

pytestmark = pytest.mark.integration

START = Path(package.__file__).parent / "start"
RELEASES = {"transformers": ("", "5.22.*"), "lightning": ("", "2.5.*"), "accelerate": ("", "1.14.*")}
"""Beside the installed one (""), the minor release before it. Another folder has it, first in the path."""

TRANSFORMERS = """
import sys, torch, transformers
from preflight import guard
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(transformers.BertConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=500,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
rows = [{"input_ids": torch.arange(64) + number, "labels": torch.tensor(number % 2)} for number in range(32)]
arguments = transformers.TrainingArguments(
    output_dir="out", max_steps=4, per_device_train_batch_size=8, per_device_eval_batch_size=2, report_to=[],
    use_cpu=True, save_steps=2, eval_strategy="steps", eval_steps=2, optim="sgd", learning_rate=0.1, disable_tqdm=True)
trainer = guard.trainer(transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows))
trainer.train()
print(f"{sum(float(one.double().pow(2).sum()) for one in model.parameters()):.6f}")
"""
LIGHTNING = """
import torch, lightning
from preflight import guard
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()
    def validation_step(self, batch, index):
        self.layer(batch[0])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), 2)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    default_root_dir="out", callbacks=[guard.Lightning()])
trainer.fit(Module(), loader, loader)
"""
ACCELERATE = """
import torch, accelerate
from preflight import guard
accelerator = guard.Accelerator(accelerate.Accelerator(cpu=True))
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
for step in range(3):
    accelerator.backward(model(torch.ones(8, 4)).mean())
    optimizer.step()
    optimizer.zero_grad()
    accelerator.save_state(f"out/step_{step}")
"""


@pytest.fixture(scope="session")
def folder_of() -> dict[tuple[str, str], str]:
    """The folders that were made, by library and release."""
    return {}


@pytest.fixture(
    params=[(name, one) for name, releases in RELEASES.items() for one in releases], ids="{0[0]} {0[1]}".format
)
def library(
    request: pytest.FixtureRequest, folder_of: dict[tuple[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A library, and the folder that has its release."""
    name, one = request.param
    pytest.importorskip(name)
    if one and request.param not in folder_of:
        folder = tmp_path_factory.mktemp(name)
        words = ["pip", "install", "-q", "--no-deps", "--target", str(folder), f"{name}=={one}"]
        done = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, timeout=HANGS, check=False
        )
        folder_of[request.param] = str(folder) if done.returncode == 0 else ""
    if one and not folder_of[request.param]:
        pytest.skip(f"{name} {one} cannot be installed here")
    return name, folder_of.get(request.param, "")


def ran(library: tuple[str, str], text: str, folder: Path, card: str = "1GiB") -> tuple[list[str], WatchedRank, str]:
    """What a program printed, its record, and its errors; the library's release is that of the folder."""
    name, place = library
    (folder / "records").mkdir()
    text = f"import {name}\nprint({name}.__file__, {name}.__version__)\n{text}"
    (folder / "program.py").write_text(text)
    path = os.pathsep.join(one for one in (str(START), place, str(Path(package.__file__).parents[2])) if one)
    environment = {
        **os.environ, "PYTHONPATH": path, "PREFLIGHT_RUN_RECORDS": str(folder / "records"), "OMP_NUM_THREADS": "1",
        "PREFLIGHT_SMALL_CARD": card,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith(place)
    [rank] = ranks_of(folder / "records")
    assert not rank.stopped
    return said, rank, done.stderr


def test_it_is_recorded_and_its_checkpoints_are_whole(library: tuple[str, str], tmp_path: Path) -> None:
    text = {"transformers": TRANSFORMERS, "lightning": LIGHTNING, "accelerate": ACCELERATE}[library[0]]
    _, rank, errors = ran(library, text, tmp_path)
    assert "preflight" not in errors
    phases = {phase for phase, peaks in rank.peaks.items() if peaks}
    assert {"forward", "backward", "optimizer", "save"} <= phases
    assert "validation" in phases or library[0] == "accelerate"
    found = checkpoints([rank])
    assert len(found) > 1 or library[0] == "lightning"
    assert {(one.form.name, one.whole) for one in found} == {(library[0], True)}


def test_steps_of_the_trainer_are_halved(library: tuple[str, str], tmp_path: Path) -> None:
    if library[0] != "transformers":
        pytest.skip("its loops catch no exception for a callback")
    (tmp_path / "large").mkdir()
    (tmp_path / "small").mkdir()
    plain, _, _ = ran(library, TRANSFORMERS, tmp_path / "large")
    halved, rank, errors = ran(library, TRANSFORMERS, tmp_path / "small", "0.9MiB")
    assert "parts from here on" in errors
    assert rank.handled
    assert float(plain[-1]) == pytest.approx(float(halved[-1]), rel=1e-6)
