"""What a step keeps for its backward pass: read from a loop over a loader, against what torch keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from preflight.python.interpreter import Interpreter
from preflight.python.objects import Instance
from preflight.python.steps import step_of
from preflight.vocabulary.values import Const, evaluate

Run = Callable[..., Interpreter]

HEAD = """
import argparse
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

class Set(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        return torch.randn({shape}), i % 4

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Linear(8 * 16 * 16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.last(torch.flatten(x, 1))

loader = DataLoader(Set(), batch_size=16)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MLP = "nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 4))"
CONVOLUTIONS = (
    "nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), "
    "nn.Conv2d(32, 64, 3, stride=2), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 4))"
)


def step(found: Interpreter) -> int | None:
    loader = next(r.value for r in found.calls if r.method == "DataLoader")
    assert isinstance(loader, Instance)
    size = step_of(loader)
    value = None if size is None else evaluate(size)
    assert value is None or isinstance(value, int)
    return value


def kept_by_torch(program: str) -> int:
    """Bytes that autograd keeps of one sample, without the batch itself and the weights."""
    scope: dict[str, object] = {}
    exec(program, scope)  # the test's own text
    model, data = scope["model"], scope["Set"]()  # type: ignore[operator]
    assert isinstance(model, torch.nn.Module)
    x, held = data[0][0][None], dict[int, int]()
    own = {one.untyped_storage().data_ptr() for one in [x, *model.parameters(), *model.buffers()]}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        at = tensor.untyped_storage().data_ptr()
        if at not in own and tensor.numel() > 4:
            held[at] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.nn.functional.cross_entropy(model(x), torch.zeros(1, dtype=torch.long))
    return sum(held.values())


@pytest.mark.parametrize(
    ("shape", "model", "passing"),
    [
        ("64", MLP, 2 * 256 * 4),
        ("3, 32, 32", "Net()", (8 + 16) * 32 * 32 * 4),  # the output, and its copy in a block of 16 channels
        ("3, 32, 32", CONVOLUTIONS, 2 * 32 * 32 * 32 * 4),
    ],
)
def test_as_much_as_torch_keeps(run: Run, shape: str, model: str, passing: int) -> None:
    program = HEAD.format(shape=shape, model=model)
    found = step(run(program + LOOP))
    assert found is not None
    kept = kept_by_torch(program)
    assert found - passing == pytest.approx(kept, rel=0.02, abs=64)


@pytest.mark.parametrize(
    "loop",
    [
        LOOP.replace("in loader", "in tqdm(loader)"),
        LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)"),
        "for epoch in range(3):\n" + LOOP.replace("\n", "\n    "),
        LOOP.replace("model(x)", "model(x.to('cpu'))"),
    ],
)
def test_loops_over_the_same_loader(run: Run, loop: str) -> None:
    head = HEAD.format(shape="64", model=MLP)
    assert step(run(head + loop)) == step(run(head + LOOP))


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        ("64", "nn.LSTM(64, 32)"),  # gates, which no table has
        ("3, 32, 32", "torchvision.models.resnet18()"),
        ("n, 64", MLP),  # a length that is not known
    ],
)
def test_what_is_not_known_is_not_counted(run: Run, shape: str, model: str) -> None:
    assert step(run(HEAD.format(shape=shape, model=model) + LOOP)) is None


def test_programs_that_speak_of_cuda_are_left_alone(run: Run) -> None:
    assert step(run(HEAD.format(shape="64", model=MLP) + "device = 'cuda'" + LOOP)) is None


def test_the_round_leaves_no_trace(run: Run) -> None:
    """The calls of a program are those that it makes, with a loop that is interpreted for one sample and without."""
    head = HEAD.format(shape="64", model=MLP)
    with_step, without = run(head + LOOP), run(head + LOOP + "# cuda")
    assert [one.qualified for one in with_step.calls] == [one.qualified for one in without.calls]
    assert [one.args for one in with_step.calls] == [one.args for one in without.calls]


def test_sizes_may_be_parameters(run: Run) -> None:
    parser = (
        "args = argparse.ArgumentParser()\nargs.add_argument('--side', type=int, default=8)\nargs = args.parse_args()"
    )
    layers = "nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.LazyLinear(4))"
    program = HEAD.format(shape="3, args.side, args.side", model=layers).replace(
        "import argparse", f"import argparse\n{parser}"
    )
    found = run(program + LOOP)
    loader = next(r.value for r in found.calls if r.method == "DataLoader")
    assert isinstance(loader, Instance)
    size = step_of(loader)
    assert size is not None
    small, large = (evaluate(size, {"side": Const(side)}) for side in (8, 16))
    assert isinstance(small, int)
    assert isinstance(large, int)
    assert 3.5 * small < large <= 4 * small
