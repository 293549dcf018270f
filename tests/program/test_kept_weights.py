"""Weights that a program keeps a copy of: on the GPU unless it says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import read_program, values

from preflight.vocabulary.values import Unknown

PROGRAM = """\
import copy
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
{before}
best = 1e9
for epoch in range(3):
    for batch in DataLoader(rows, batch_size=4):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
    if loss.item() < best:
        best = loss.item()
        {line}
"""


def copies(line: str, root: Path, before: str = "") -> object:
    return values(read_program(PROGRAM.format(line=line, before=before), root)).get("train.copies.ema")


@pytest.mark.parametrize(
    "line",
    [
        "kept = copy.deepcopy(model.state_dict())",
        "kept = {k: v.clone() for k, v in model.state_dict().items()}",
        "kept = [p.detach().clone() for p in model.parameters()]",
    ],
)
def test_a_copy_that_a_loop_keeps_is_on_the_gpu(line: str, tmp_path: Path) -> None:
    assert copies(line, tmp_path) == 1


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("kept = copy.deepcopy(model)", ""),
        ("pass", "first = copy.deepcopy(model.state_dict())"),
        ("kept = copy.deepcopy(model.state_dict())", "ema = torch.optim.swa_utils.AveragedModel(model)"),
    ],
)
def test_a_copy_that_may_be_elsewhere_is_unknown(line: str, before: str, tmp_path: Path) -> None:
    assert isinstance(copies(line, tmp_path, before), Unknown)


@pytest.mark.parametrize(
    "line",
    [
        "states[epoch] = copy.deepcopy(model.state_dict())",
        "states.append(copy.deepcopy(model.state_dict()))",
        "states.append({k: v.clone() for k, v in model.state_dict().items()})",
        "states += [copy.deepcopy(model.state_dict())]",
        "states = [copy.deepcopy(model.state_dict()) for _ in range(3)]",
        "best = copy.deepcopy(model.state_dict()); last = copy.deepcopy(model.state_dict())",
    ],
)
def test_a_loop_that_keeps_each_copy_keeps_any_number(line: str, tmp_path: Path) -> None:
    assert isinstance(copies(line, tmp_path), Unknown)


def test_a_copy_that_a_function_returns_has_no_known_place(tmp_path: Path) -> None:
    function = "def snapshot():\n    return copy.deepcopy(model.state_dict())"
    assert isinstance(copies("kept = snapshot()", tmp_path, function), Unknown)


@pytest.mark.parametrize(
    "line", ["kept['best'] = copy.deepcopy(model.state_dict())", "kept = copy.deepcopy(model.state_dict())"]
)
def test_a_place_holds_one_copy(line: str, tmp_path: Path) -> None:
    before = "kept = copy.deepcopy(model.state_dict())" if line.startswith("kept =") else ""
    assert copies(line, tmp_path, before) == 1


@pytest.mark.parametrize(
    "line",
    [
        "kept = {k: v.cpu().clone() for k, v in model.state_dict().items()}",
        "kept = copy.deepcopy(model).cpu()",
        "torch.save(copy.deepcopy(model.state_dict()), 'x.pt')",
        "torch.save(model.state_dict(), 'x.pt')",
        "kept = copy.deepcopy(settings)",
    ],
)
def test_a_copy_on_the_host_or_none(line: str, tmp_path: Path) -> None:
    assert copies(line, tmp_path) is None


LAYERS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for _ in range(3):
            layer = Block()
            self.{name}.append(copy.deepcopy(layer))
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(2, 2)
net = Net()
"""


def test_a_layer_that_a_module_makes_of_another_is_no_copy(tmp_path: Path) -> None:
    assert copies("pass", tmp_path, LAYERS.format(name="layers")) is None
    assert isinstance(copies("pass", tmp_path, LAYERS.format(name="ema_layers")), Unknown)
