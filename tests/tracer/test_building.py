"""timm's models are made for the side of their images, and checkpointed by timm's own way."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.utils.checkpoint

from preflight.tracer import building, models, steps


class Embedding(torch.nn.Module):
    def __init__(self, side: int, strict: bool) -> None:
        super().__init__()
        self.img_size, self.strict_img_size = (side, side), strict


class Net(torch.nn.Module):
    """Blocks that are checkpointed as timm's are: torch.utils.checkpoint.checkpoint, found when it is called."""

    def __init__(self, img_size: int = 224, strict: bool = True, num_classes: int = 10, depth: int = 4) -> None:
        super().__init__()
        self.patch_embed = Embedding(img_size, strict)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.Linear(128, 32))
            for _ in range(depth)
        )
        self.head = torch.nn.Linear(32, num_classes)
        self.saving = False

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.saving = enable

    def forward(self, x: Any) -> Any:
        x = x.flatten(1)[:, :32]
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.saving else block(x)
        return self.head(x)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A library of that name that makes Nets; what it was asked for."""
    asked: list[dict[str, Any]] = []

    def create_model(name: str, **kwargs: Any) -> Net:
        asked.append(kwargs)
        return Net(strict=name != "free", **kwargs)

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model, __version__="0"))
    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", torch.utils.checkpoint.checkpoint)
    monkeypatch.setattr(building, "_CONTEXT", [])
    return asked


def test_a_constructor_may_read_what_it_makes() -> None:
    class Reads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(int(torch.arange(4).sum().item()), 2)

    with torch.device("meta"):
        made = building.on_meta(Reads)
    assert made.layer.weight.shape == (2, 6)
    assert made.layer.weight.is_meta


def test_what_a_constructor_raises_is_raised() -> None:
    def wrong() -> torch.nn.Module:
        raise RuntimeError("there is no such block")

    with pytest.raises(RuntimeError, match="no such block"):
        building.on_meta(wrong)


@pytest.mark.parametrize(
    ("name", "side", "kwargs", "made"),
    [("net", 224, {}, 224), ("net", 384, {}, 384), ("net", None, {}, 224), ("free", 384, {}, 224),
     ("net", 384, {"img_size": 448}, 448)],
)  # fmt: skip
def test_a_model_whose_positions_are_of_another_side_is_made_anew(
    timm: list[dict[str, Any]], name: str, side: int | None, kwargs: dict[str, int], made: int
) -> None:
    net = building.make_timm(name, side, kwargs)
    assert net.patch_embed.img_size == (made, made)


def test_checkpointing_keeps_less_and_computes_again(timm: list[dict[str, Any]]) -> None:
    def traced(checkpointing: bool) -> tuple[int, int]:
        """(bytes alive when forward is over, births)."""
        setup = {"weights": "fp32", "autocast": None, "attention": "sdpa", "mask": False,
                 "checkpointing": checkpointing}  # fmt: skip
        model = {"target": "timm:net", "kwargs": {}, "task": "image-classification", "image_size": 224}
        tape = steps.trace({"model": model, "setup": setup, "point": {"b": 64, "i": 224}, "kind": "train"})["events"]
        live = 0
        for value, tag in tape:
            if tag.startswith("forward"):
                live += value if value >= 0 else -tape[-1 - value][0]
        return live, sum(value >= 0 for value, _ in tape)

    stored, checkpointed = traced(False), traced(True)
    assert checkpointed[0] < stored[0]
    assert checkpointed[1] > stored[1]
    assert traced(False) == stored  # nothing of it stays


def test_images_have_the_channels_that_the_model_is_made_for() -> None:
    model = {"target": "timm:net", "kwargs": {"in_chans": 10}, "task": "image-classification"}
    assert models.inputs(model, {"b": 2, "i": 32}, False, torch.float32)["pixel_values"].shape == (2, 10, 32, 32)


def test_checkpointing_of_a_model_that_has_none_is_not_guessed() -> None:
    with pytest.raises(models.CannotBuild, match="Linear has no built-in gradient checkpointing"):
        models.enable_checkpointing(torch.nn.Linear(2, 2), None)
