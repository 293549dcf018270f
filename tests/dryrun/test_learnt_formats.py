"""Formats of data that a program's own code tells: fields of a line, numbers in names, days beside numbered columns,
sounds, checkpoints that are there, and what is asked of a loader by `next`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from programs import STEP, Ran, dry_run
from test_tried_arrays import guesses

pytest.importorskip("torch")

FIELDS = """\
users = {}
with open("data/ratings.txt") as file:
    for line in file:
        user, item, name = line.rstrip().split("::")
        users.setdefault(int(user), []).append((float(item), name))
assert len(users) > 50 and all(len(one) > 2 for one in users.values())
places = [line.strip().split() for line in open("edges.txt")]
step(); step()
"""
NUMBERED = """\
import os
names = os.listdir("pictures")
classes = {int(name.split("_")[0]) for name in names}
assert len(classes) > 1
step(); step()
"""
DAYS = """\
import pandas
table = pandas.read_csv("load.csv")
columns = list(table.columns)
columns.remove("date")
hours = pandas.to_datetime(table["date"]).dt.hour
values = table[columns].values
assert values.dtype == float and len(hours) == len(values)
indexed = pandas.read_csv("power.csv", index_col="date", parse_dates=True)
assert len(indexed.index.month) == len(indexed)
step(); step()
"""
LOADED = """\
import os
kept = torch.load("best.pt", map_location="cuda")
assert kept["weights"]["weight"].is_cuda and kept["epoch"] == 3
net.load_state_dict(kept["weights"])
assert not torch.load("best.pt")["weights"]["weight"].is_cuda
step(); step()
"""
NEXT = """\
loader = torch.utils.data.DataLoader(torch.zeros(64, 64), batch_size=4)
with torch.no_grad():
    batches = iter(loader)
    for _ in range(5):
        net(next(batches).cuda())
step(); step()
"""
KEYWORD = """\
from transformers import AutoModelForSequenceClassification, AutoTokenizer
AutoTokenizer.from_pretrained(pretrained_model_name_or_path="bert-base-uncased")
net = AutoModelForSequenceClassification.from_pretrained(pretrained_model_name_or_path="bert-base-uncased").cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(input_ids=torch.zeros(1, 8, dtype=torch.long, device="cuda")).logits.sum().backward()
    optimizer.step()
"""


def ran(folder: Path, body: str) -> Ran:
    (folder / "train.py").write_text(STEP + body)
    return dry_run(folder, "--output-format", "json", "--", sys.executable, "train.py")


@pytest.mark.slow
@pytest.mark.parametrize("body", [FIELDS, NUMBERED, DAYS, NEXT], ids=["fields", "numbers", "days", "next"])
def test_what_the_programs_own_code_tells(body: str, tmp_path: Path) -> None:
    if "pandas" in body:
        pytest.importorskip("pandas")
    found = ran(tmp_path, body)
    assert found.status == 0, found.err


@pytest.mark.slow
def test_a_checkpoint_that_is_there_is_read_to_the_gpu(tmp_path: Path) -> None:
    import torch

    torch.save({"weights": torch.nn.Linear(64, 64).state_dict(), "epoch": 3}, tmp_path / "best.pt")
    found = ran(tmp_path, LOADED)
    assert found.status == 0, found.err


@pytest.mark.slow
def test_the_name_of_a_model_by_its_keyword(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = ran(tmp_path, KEYWORD)
    assert found.status == 0, found.err


def test_models_that_the_documentation_of_a_class_names() -> None:
    pytest.importorskip("transformers")
    guesses()  # the package inside
    kind = importlib.import_module("inside_of_test.stand_ins.hub_models")._kind_documented
    assert kind("facebook/detr-resnet-50") == "detr"
    assert kind("facebook/detr-resnet-50-mine") is None
    assert kind("detr") is None
