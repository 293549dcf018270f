"""Data sets that keep Python objects, and checkpoints that every process loads: what is told and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, read_program, values

DATASET = """
import glob, json, pickle
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, path):
        {made}

    def __getitem__(self, index):
        return self.items[index]


loader = DataLoader(Texts("a"), batch_size=8)
"""


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("self.items = json.load(open(path))", "objects"),
        ("self.items = [json.loads(line) for line in open(path)]", "objects"),
        ("self.items = [{'x': n} for n in range(9)]", "objects"),
        ("self.items: list = pickle.load(open(path, 'rb'))", "objects"),
        ("self.items = open(path).readlines()", "strings"),
        ("self.items = open(path).read().splitlines()", "strings"),
        ("self.items = [line.strip() for line in open(path)]", "strings"),
        (
            "self.items = []\n        for line in open(path):\n            self.items.append(json.loads(line))",
            "objects",
        ),
    ],
)
def test_held(made: str, kind: str, tmp_path: Path) -> None:
    reading = read_program(DATASET.format(made=made), tmp_path)
    assert facts(reading)["dataset_held"] == kind
    assert values(reading)["data.in_memory_kind"] == kind
    [origin] = [fact.origin for fact in reading.facts if fact.name == "dataset_held"]
    assert origin is not None
    text = (tmp_path / "train.py").read_text()
    assert f"= {text[origin.span.start : origin.span.end]}" in text


@pytest.mark.parametrize(
    "made",
    [
        "self.items = np.load(path)",
        "self.items = torch.load(path)",
        "self.items = sorted(glob.glob(path))",
        "self.items = make(path)",
        "self.rest = json.load(open(path))",
        "self.items = []",
    ],
)
def test_left_alone(made: str, tmp_path: Path) -> None:
    reading = read_program(DATASET.format(made=made), tmp_path)
    assert "dataset_held" not in facts(reading)
    assert "data.in_memory_kind" not in values(reading)


LOADS = """
import torch, transformers

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1)
{load}
model(torch.ones(2)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("load", "how", "told"),
    [
        ("state = torch.load('a.pt', map_location='cpu')", "torch-load", True),
        ("state = torch.load('a.pt', 'cpu')", "torch-load", True),
        ("state = torch.load('a.pt', map_location='cpu', mmap=True)", "torch-load-mmap", False),
        ("state = torch.load('a.pt')", None, False),
        ("state = torch.load('a.pt', map_location='cuda')", None, False),
        ("state = None", None, False),
        ("lm = transformers.AutoModelForCausalLM.from_pretrained('gpt2')", "from-pretrained", False),
        ("lm = transformers.AutoModel.from_pretrained('gpt2', dtype='auto')", "from-pretrained", False),
        ("lm = transformers.GPT2LMHeadModel.from_pretrained('gpt2', dtype=torch.bfloat16)", None, False),
        (
            "lm = transformers.AutoModel.from_pretrained('x', dtype=torch.half, device_map='auto')",
            "from-pretrained",
            False,
        ),
        ("words = transformers.AutoTokenizer.from_pretrained('gpt2')", None, False),
    ],
)
def test_checkpoints(load: str, how: str | None, told: bool, tmp_path: Path) -> None:
    reading = read_program(LOADS.format(load=load), tmp_path)
    assert values(reading).get("model.load") == how
    assert ("checkpoint_loaded" in facts(reading)) == told


OPENED = {
    "a list in memory": ("return self.rows[i]", False),
    "text": ("return json.load(open(self.files[i]))", False),
    "a picture": ("return Image.open(self.files[i])", False),
    "an array": ("return np.load(self.files[i])", True),
    "tensors": ("with torch.no_grad():\n            return torch.load(self.files[i])['x']", True),
    "a volume": ("return nib.load(self.files[i]).get_fdata()", True),
    "a group of a file": ("with h5py.File(self.path) as file:\n            return file[str(i)][:]", True),
}


@pytest.mark.parametrize("how", OPENED)
def test_data_sets_that_open_a_file_of_arrays_for_each_sample(how: str, tmp_path: Path) -> None:
    body, opens = OPENED[how]
    text = f"""
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset[dict[str, torch.Tensor]]):
    def __init__(self):
        self.all = np.load("index.npy")
    def __getitem__(self, i):
        {body}
for batch in DataLoader(Rows(), 4):
    model(batch).sum().backward()
"""
    assert ("sample_files" in facts(read_program(text, tmp_path))) is opens
