"""Modules of a project are read to the byte: events, gradients and parameters are those of the same program when its
classes are imported and a round of its loop is executed."""

from __future__ import annotations

import ast
import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from preflight.frameworks import calls  # noqa: E402
from preflight.tracer import own, steps  # noqa: E402
from preflight.tracer.building import CannotBuild, Output  # noqa: E402
from preflight.vocabulary.own_code import kept  # noqa: E402
from tests.programs_as_text import read_program, values  # noqa: E402
from tests.tracer.more_own_models_as_text import MORE  # noqa: E402
from tests.tracer.own_models_as_text import PROGRAMS  # noqa: E402

ALL = {**PROGRAMS, **MORE}
SETUP = {"weights": "fp32", "autocast": None, "attention": "sdpa"}


def described(text: str, root: Path, **files: str) -> dict[str, Any]:
    """What the tracer gets of a program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "handwritten_bindings", lambda *_: [])  # what resembles a family is not read
        said = values(read_program(text, root, **files))
    code = kept(str(said["model.target"]))
    assert code is not None, said.get("model.target")
    given = {name.removeprefix("model.kwargs."): one for name, one in said.items() if name.startswith("model.kwargs.")}
    return {"kind": "own", "given": given, **code.described}


class Imported(torch.nn.Module):
    """The program's own model, and a round of its loop as Python executes it."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__()
        self.module = types.ModuleType(name)
        sys.modules[name] = self.module
        exec(compile(text, name, "exec"), self.module.__dict__)
        main = next(one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == "main")
        self.names = dict(self.module.__dict__)
        for statement in main.body:
            if isinstance(statement, ast.For):
                break
            run = compile(ast.Module([statement], []), name, "exec")
            try:
                with torch.device("meta"):
                    exec(run, self.names)
            except (RuntimeError, NotImplementedError):
                exec(run, self.names)
            if "device" in self.names and not isinstance(self.names.get("model"), torch.nn.Module):
                self.names["device"] = torch.device("meta")
        self.inner = self.names["model"].to("meta").train()
        rounds = next(one for one in ast.walk(main) if isinstance(one, ast.For) and ast.unparse(one.iter) == "loader")
        until = next(at for at, one in enumerate(rounds.body) if "backward" in ast.unparse(one))
        body = [*rounds.body[:until], *ast.parse("return loss, dict(locals())").body]
        arguments = ast.parse(f"def step({ast.unparse(rounds.target).strip('()')}): pass").body[0]
        assert isinstance(arguments, ast.FunctionDef)
        arguments.body = body
        exec(compile(ast.fix_missing_locations(ast.Module([arguments], [])), name, "exec"), self.names)

    named_modules = own.Step.named_modules
    named_parameters = own.Step.named_parameters
    named_buffers = own.Step.named_buffers

    def checkpoints_in(self, again: Any) -> None:
        """The reading gives the context of recomputation itself."""
        real = torch.utils.checkpoint.checkpoint
        self.names["checkpoint"] = self.module.__dict__["checkpoint"] = lambda *a, **k: real(*a, context_fn=again, **k)

    def forward(self, **batch: Any) -> Output:
        given = {one.untyped_storage()._cdata for one in batch.values()}
        with torch.device("meta"):
            loss, names = self.names["step"](*batch.values())
        kept_ = {
            name: one
            for name, one in names.items()
            if isinstance(one, torch.Tensor) and one is not loss and one.untyped_storage()._cdata not in given
        }
        return Output(loss, **kept_)


@contextlib.contextmanager
def imported(text: str, name: str) -> Iterator[None]:
    """The tracer builds the imported program."""
    plain = own.build
    own.build = lambda *_: Imported(text, name)  # type: ignore[assignment]
    try:
        yield
    finally:
        own.build = plain
        sys.modules.pop(name, None)


def compared(text: str, name: str, model: dict[str, Any], kind: str, batch: int = 4) -> None:
    request = {"model": model, "setup": SETUP, "point": {"b": batch}, "kind": kind, "warm_up": True}
    read = steps.trace(request)
    with imported(text, f"imported_{name}"):
        run = steps.trace(request)
    assert read["events"] == run["events"]
    assert read["parameters"] == run["parameters"]
    assert read["buffers"] == run["buffers"]
    assert read["gradients"] == run["gradients"]
    assert read["outputs"] == run["outputs"]
    assert read["held"] == run["held"]


@pytest.mark.parametrize("name", ALL)
def test_a_step_is_read_as_torch_runs_it(name: str, tmp_path: Path) -> None:
    compared(ALL[name], name, described(ALL[name], tmp_path), "train")


@pytest.mark.parametrize("name", ["resnet", "gpt", "unet"])
def test_so_is_a_validation_step(name: str, tmp_path: Path) -> None:
    compared(ALL[name], name, described(ALL[name], tmp_path), "eval")


def test_autocast_of_the_program_is_that_of_a_librarys_model(tmp_path: Path) -> None:
    """The events of the same class whose whole step is under autocast, as models of libraries are traced."""
    plain = ALL["vgg"]
    inside = plain.replace(
        "            out = model(x)\n            loss = criterion(out, y)",
        "            with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "                out = model(x)\n                loss = criterion(out, y)",
    )
    assert inside != plain
    setup = {**SETUP, "autocast": "bf16"}
    request = {"setup": setup, "point": {"b": 4}, "kind": "train", "warm_up": True}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    entered = steps.trace({**request, "model": described(inside, tmp_path / "a")})
    around = steps.trace({**request, "model": described(plain, tmp_path / "b")})
    assert [size for size, _ in entered["events"] if size > 0] == [size for size, _ in around["events"] if size > 0]
    with pytest.raises(CannotBuild, match="precision says another type"):
        steps.trace({**request, "setup": {**setup, "autocast": "fp16"}, "model": described(inside, tmp_path / "a")})


UNKNOWN = {
    "a call that no table names": ("return self.fc2(x)", "return external(self.fc2(x))"),
    "numbers in a tensor": ("x = self.fc2(x)", "x = self.fc2(x) if x.sum() > 0 else x"),
    "a library that is not known": ("x = self.fc2(x)", "import triton\n        x = triton.jit(self.fc2)(x)"),
    "a loss that is not known": ("F.nll_loss(model(x), y)", "losses.special(model(x), y)"),
    "a factor that is not known": ("F.nll_loss(model(x), y)", "F.nll_loss(model(x), y) * factor"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_known_ends_the_reading_with_its_place(what: str, tmp_path: Path) -> None:
    old, new = UNKNOWN[what]
    text = ALL["lenet"]
    if old not in text:
        old, new = "x = self.fc2(x)", "x = external(self.fc2(x))"
    request = {"model": described(text.replace(old, new), tmp_path), "setup": SETUP, "point": {"b": 4}, "kind": "train"}
    with pytest.raises(CannotBuild, match=r"train.py, line \d+"):
        steps.trace(request)


NOT_DESCRIBED = {
    "two models": (
        "criterion = nn",
        "other = Net().to(device)\n    second = torch.optim.SGD(other.parameters(), 1)\n    criterion = nn",
    ),
    "a part changed from outside": ("criterion = nn", "model.fc2 = nn.Linear(50, 99)\n    criterion = nn"),
    "a size that is not known": ("Net()", "Net(int(open('size').read()))"),
    "samples that are not known": ("data = ", "data = unknown() or "),
    "a function that makes batches": ("shuffle=True", "shuffle=True, collate_fn=lambda x: x"),
    "two backward passes": ("loss.backward()", "loss.backward()\n            model(x).sum().backward()"),
}


@pytest.mark.parametrize("what", NOT_DESCRIBED)
def test_what_is_not_sure_is_not_described(what: str, tmp_path: Path) -> None:
    old, new = NOT_DESCRIBED[what]
    text = ALL["lenet"].replace("def __init__(self):", "def __init__(self, size=1):")
    assert old in text
    said = values(read_program(text.replace(old, new), tmp_path))
    assert "model.target" not in said or not str(said["model.target"]).startswith("read:")


LIGHTNING = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

class Lit(L.LightningModule):
    def __init__(self, width=8, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Conv2d(3, self.hparams.width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.net(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)

def main():
    data = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,)))
    L.Trainer(max_epochs=2).fit(Lit(width=16), DataLoader(data, batch_size=8))

main()
"""


def test_a_lightning_module_is_read_by_its_training_step(tmp_path: Path) -> None:
    model = described(LIGHTNING, tmp_path)
    found = steps.trace({"model": model, "setup": SETUP, "point": {"b": 4}, "kind": "train", "warm_up": True})
    assert sum(count for _, _, count, _ in found["parameters"]) == 3 * 16 * 9 + 16 + 16 * 10 + 10
    births = [size for size, tag in found["events"] if size > 0 and tag.startswith("forward:net")]
    assert births == [4 * 16 * 14 * 14 * 4, 4 * 16 * 14 * 14 * 4, 4 * 16 * 4]
