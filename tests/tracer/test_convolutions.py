"""Workspaces of convolutions on a tape, and batch normalisation without its arithmetic."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from preflight.tracer import convolutions, steps  # noqa: E402

ATEN = torch.ops.aten


def backward_of(channels: int, outputs: int, kernel: int, groups: int = 1, dtype: Any = None,
                wanted: tuple[bool, bool, bool] = (True, True, False)) -> tuple[Any, ...]:  # fmt: skip
    """Arguments of aten.convolution_backward for a batch of 2 at 10x10, with "same" padding."""
    make = {"device": "meta", "dtype": dtype or torch.float32}
    x = torch.empty(2, channels, 10, 10, **make)
    gradient = torch.empty(2, outputs, 10, 10, **make)
    weight = torch.empty(outputs, channels // groups, kernel, kernel, **make)
    half = [kernel // 2] * 2
    return gradient, x, weight, None, [1, 1], half, [1, 1], False, [0, 0], groups, wanted


def bytes_of(args: tuple[Any, ...]) -> int | None:
    space = convolutions.workspace(ATEN.convolution_backward.default, args)
    return None if space is None else int(space.untyped_storage().nbytes())


def test_aligned_channels_are_copied_once_each() -> None:
    args = backward_of(8, 16, 3)
    assert bytes_of(args) == 4 * sum(prod(t.shape) for t in args[:3])


def test_an_image_is_written_out_as_patches_of_four_channels() -> None:
    assert bytes_of(backward_of(3, 16, 3)) == 4 * (4 * 9 * 2 * 100)
    assert bytes_of(backward_of(3, 16, 3, dtype=torch.bfloat16)) == 2 * (8 * 9 * 2 * 100)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(backward_of(8, 16, 1), id="1x1"),
        pytest.param(backward_of(8, 8, 3, groups=8), id="depthwise"),
        pytest.param(backward_of(8, 16, 3, wanted=(True, False, False)), id="a frozen weight"),
    ],
)
def test_none(args: tuple[Any, ...]) -> None:
    assert bytes_of(args) is None


def test_other_operations_have_none() -> None:
    assert convolutions.workspace(ATEN.relu.default, (torch.empty(2, device="meta"),)) is None


class Small(torch.nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 4)
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return self.head(self.conv(self.stem(x)).mean((2, 3)))


def test_a_workspace_is_born_after_the_gradients_and_dies_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.tracer.models.build_target", lambda model: Small())
    setup = {"weights": "fp32", "autocast": None}
    request = {"model": {"target": "x", "task": "image-classification"}, "setup": setup, "point": {"b": 2, "i": 10},
               "kind": "train"}  # fmt: skip
    reply = steps.trace(request)
    assert len(reply["workspaces"]) == 2
    for birth in reply["workspaces"]:
        assert reply["events"][birth][0] > 0
        assert reply["events"][birth + 1][0] == -1 - birth
    assert reply["events"][reply["workspaces"][0]][0] == 4 * (2 * 2 * 8 * 100 + 8 * 8 * 9)
    assert "backward:conv" in reply["events"][reply["workspaces"][0]][1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_as_torch_has_it(dtype: str, training: bool) -> None:
    x = torch.empty(2, 6, 5, 5, device="meta", dtype=getattr(torch, dtype))
    weight, bias, mean, var = (torch.empty(6, device="meta") for _ in range(4))
    args = (x, weight, bias, mean, var, training, 0.1, 1e-5)
    assert described(convolutions.batch_norm(ATEN.native_batch_norm.default, args, {})) == described(
        ATEN.native_batch_norm.default(*args)
    )


@pytest.mark.parametrize("wanted", [[True, True, True], [False, True, True], [True, False, False]])
def test_its_backward_as_torch_has_it(wanted: list[bool]) -> None:
    x = torch.empty(2, 6, 5, 5, device="meta", dtype=torch.bfloat16)
    weight, mean, var, saved, deviation = (torch.empty(6, device="meta") for _ in range(5))
    args = (x, x, weight, mean, var, saved, deviation, True, 1e-5, wanted)
    func = ATEN.native_batch_norm_backward.default
    assert described(convolutions.batch_norm(func, args, {})) == described(func(*args))


def test_other_operations_are_left_alone() -> None:
    assert convolutions.batch_norm(ATEN.relu.default, (torch.empty(2, device="meta"),), {}) is None


def described(results: Any) -> list[Any]:
    return [None if t is None else (tuple(t.shape), t.dtype, t.untyped_storage().nbytes()) for t in results]
