"""Whether a data set is indexed or iterated: what must not pass for indexed, then what is."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, read_program

HEAD = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split
from datasets import load_dataset
from torchvision import datasets
from elsewhere import Thing
class Indexed(Dataset):
    def __getitem__(self, i): return i
    def __len__(self): return 3
class Stream(IterableDataset):
    def __iter__(self): yield 1
class Plain:
    def __iter__(self): yield 1
"""
STREAMS = (
    "Stream()", "Plain()", 'load_dataset("c4", split="train", streaming=True)',
    'load_dataset("c4", streaming=True)["train"].map(str).with_format("torch")',
    'load_dataset("imdb")["train"].to_iterable_dataset()',
)  # fmt: skip
UNKNOWN = ("Thing()", "make()", 'load_dataset("c4", streaming=flag())', "Indexed() if flag() else Thing()")
INDEXED = (
    "Indexed()", "TensorDataset(torch.zeros(3))", "Subset(Indexed(), [1])", 'datasets.CIFAR10("x")', "[1, 2]",
    "random_split(Indexed(), [1, 2])[0]", 'load_dataset("imdb")["train"]',
    'load_dataset("imdb").map(str)["train"].shuffle(seed=1).select(range(10))',
)  # fmt: skip


def kind(program: str, tmp_path: Path) -> object:
    return dict(facts(read_program(HEAD + program, tmp_path))).get("dataset_kind")


@pytest.mark.parametrize("made", STREAMS)
def test_streams(made: str, tmp_path: Path) -> None:
    assert kind(f"for x in DataLoader({made}, num_workers=4): loss.backward()", tmp_path) == "iterable"


@pytest.mark.parametrize("made", UNKNOWN)
def test_what_cannot_be_read(made: str, tmp_path: Path) -> None:
    assert kind(f"for x in DataLoader({made}, num_workers=4): loss.backward()", tmp_path) is None


@pytest.mark.parametrize("made", INDEXED)
def test_indexed(made: str, tmp_path: Path) -> None:
    assert kind(f"for x in DataLoader({made}, num_workers=4): loss.backward()", tmp_path) == "map"


@pytest.mark.parametrize("said", ["shuffle=True", "sampler=torch.utils.data.RandomSampler(x)"])
def test_a_loader_that_asks_for_indices(said: str, tmp_path: Path) -> None:
    assert kind(f"for x in DataLoader(Thing(), num_workers=4, {said}): loss.backward()", tmp_path) == "map"


def test_a_trainer(tmp_path: Path) -> None:
    program = "from transformers import Trainer\nTrainer(model, args, train_dataset={}).train()"
    assert kind(program.format("Stream()"), tmp_path) == "iterable"
    assert kind(program.format('load_dataset("imdb")["train"]'), tmp_path) == "map"


def test_a_loader_that_validates_does_not_matter(tmp_path: Path) -> None:
    program = "train_loader = DataLoader(Indexed())\nval_loader = DataLoader(Thing())\nloss.backward()"
    assert kind(program, tmp_path) == "map"
