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

from preflight.tracer import own, steps  # noqa: E402
from preflight.tracer.building import Output  # noqa: E402
from preflight.vocabulary.own_code import kept  # noqa: E402
from tests.programs_as_text import read_program, values  # noqa: E402
from tests.tracer.more_own_models_as_text import MORE  # noqa: E402
from tests.tracer.own_models_as_text import PROGRAMS  # noqa: E402

ALL = {**PROGRAMS, **MORE}
SETUP = {"weights": "fp32", "autocast": None, "attention": "sdpa"}


def described(text: str, root: Path, **files: str) -> dict[str, Any]:
    """What the tracer gets of a program."""
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
