"""Arrays whose shapes nobody states: sizes that are tried, what errors tell of them, and what stays a lower bound."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import dry_run

import preflight

pytest.importorskip("torch")

LOOP = """\
net, optimizer = net.cuda(), None
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=100):
    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ROWS = """\
import numpy, torch
x, y = numpy.load("data/x.npy"), numpy.load("data/y.npy")
data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
net = torch.nn.Linear(784, 10)
"""
TENSORS = """\
import torch
kept = torch.load("data/train.pt")
data = torch.utils.data.TensorDataset(kept["images"], kept["labels"])
net = torch.nn.Linear(784, 10)
"""
PICKLED = """\
import pickle, torch
class Data(torch.utils.data.Dataset):
    def __init__(self):
        with open("data/train.pkl", "rb") as file:
            self.kept = pickle.load(file)
    def __len__(self):
        return len(self.kept["label"])
    def __getitem__(self, number):
        return self.kept["x"][number], self.kept["label"][number]
data, net = Data(), torch.nn.Sequential(torch.nn.Conv2d(5, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "said", "verdict"),
    [
        (ROWS, ["x.npy is not there: zeros of 300x784 stand for it, with 784", "data/y.npy is not there"], "fits-if"),
        pytest.param(
            TENSORS, ["data/train.pt:images is not there: zeros of 300x784", "data/train.pt:labels"], "fits-if",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            PICKLED, ["data/train.pkl:label is not there", "data/train.pkl:x is not there: zeros of 300x5x"], "unknown",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_sizes_that_layers_tell(tmp_path: Path, program: str, said: list[str], verdict: str) -> None:
    (tmp_path / "train.py").write_text(program + LOOP)
    found = dry_run(tmp_path, "--gpu", "RTX 4090", "--output-format", "json", "--", "python", "train.py")
    assert found.status == 0, found.err
    stated = [one for one in found.data["dry_run"]["assumptions"] if "not there" in one]
    assert [words in one for one, words in zip(stated, said, strict=True)] == [True] * len(said)
    assert found.data["dry_run"]["steps"][0] >= 2
    assert found.data["verdict"] == verdict
    assert any("--array" in one for one in stated) == (verdict == "unknown")


class Said:
    """What stands for the tape."""

    data_made_up = False

    def assume(self, *_: str) -> None: ...


def guesses(**tried: object) -> Any:
    home = Path(preflight.__file__).parent / "dryrun" / "inside"
    spec = importlib.util.spec_from_file_location("inside_of_test", home / "__init__.py", submodule_search_locations=[str(home)])  # fmt: skip  # noqa: E501
    assert spec is not None
    assert spec.loader is not None
    package: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["inside_of_test"] = package
    module = importlib.import_module("inside_of_test.stand_ins.guesses")
    found = module.Guesses(tried, Said())
    found.used = dict.fromkeys(tried)
    return found


@pytest.mark.parametrize(
    ("words", "sizes", "after"),
    [
        ("expected input[10, 17, 19, 23] to have 3 channels, but got 17 channels instead", [17, 19, 23], [3, 19, 23]),
        ("input.size(-1) must be equal to input_size. Expected 10, got 23", [17, 19, 23], [17, 19, 10]),
        ("mat1 and mat2 shapes cannot be multiplied (64x323 and 784x10)", [17, 19], [28, 28]),
        ("a and b must have same reduction dim, but got [64, 17] X [784, 10].", [17], [784]),
        ("The size of tensor a (51) must match the size of tensor b (19) at dimension 3", [17, 19], [17, 51]),
        ("shape '[-1, 784]' is invalid for input of size 1700", [17], [784]),
        ("Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [8, 17, 19, 23, 29]",
         [17, 19, 23, 29], [19, 23, 29]),
        ("Sizes of tensors must match except in dimension 1. Expected 8 in dimension 2 but got 9", [17, 19], [64, 64]),
        ("mat1 and mat2 shapes cannot be multiplied (64x1000 and 784x10)", [17, 19], [28, 28]),
        ("cannot reshape array of size 4352 into shape (3,32,32)", [17], [3072]),
        ("Cannot handle this data type: (1, 1, 23), <f4", [17, 19, 23], [17, 19, 3]),
        ("Cannot handle this data type: (1, 1, 1), |u1", [17, 19, 1], [17, 19]),
        ("Given input size: (8x2x3). Calculated output size: (8x0x0). Output size is too small", [17, 19], [28, 28]),
        ("an error that tells nothing of 17 and 19", [17, 19], None),
    ],
)  # fmt: skip
def test_what_an_error_tells(words: str, sizes: list[int], after: list[int] | None) -> None:
    found = guesses(x=[[300, *sizes], [True, *(False for _ in sizes)], "float32", 0]).learnt(RuntimeError(words), None)
    assert (found and found["x"][0][1:]) == after
