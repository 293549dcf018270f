"""The tracer imports nothing of preflight, and answers over a pipe from any interpreter with torch."""

from __future__ import annotations

import ast
import signal
from pathlib import Path
from typing import Any

import pytest

from preflight.memory.device.fit import subprocess as tracing
from preflight.system import processes

TRACER = Path(tracing.__file__).parents[3] / "tracer"


@pytest.mark.parametrize("path", sorted(TRACER.rglob("*.py")), ids=lambda p: p.name)
def test_nothing_of_preflight_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.partition(".")[0] == "preflight" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").partition(".")[0] != "preflight"


SETUP = {"weights": "fp32", "autocast": None, "attention": "sdpa", "mask": False}
RESNET = {
    "model": {"target": "torchvision:resnet18", "task": "image-classification"},
    "setup": SETUP,
    "point": {"b": 2, "i": 32},
    "kind": "train",
}
"""It needs torch alone, which is imported in half the time that transformers takes."""


def _request(architecture: str) -> dict[str, object]:
    config = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "vocab_size": 90,
    }
    model = {"architecture": architecture, "task": "causal-lm", "config": config}
    return {"model": model, "setup": SETUP, "point": {"b": 2, "s": 16}, "kind": "train"}


@pytest.mark.parametrize(
    "asked",
    [pytest.param(RESNET, id="resnet18"), pytest.param(_request("llama"), id="llama", marks=pytest.mark.slow)],
)
def test_a_trace_over_the_pipe(asked: dict[str, object]) -> None:
    pytest.importorskip("torch")
    replies, versions = tracing.request_traces([asked])
    assert versions["torch"]
    reply = replies[0]
    live = sum(v if v >= 0 else -reply["events"][-1 - v][0] for v, _ in reply["events"])
    gradients = sum(reply["events"][int(b)][0] for b in reply["gradients"])
    assert gradients == sum(nbytes for _, nbytes, _, _ in reply["parameters"])
    assert live == gradients, "after a step nothing but gradients is left"


def test_what_cannot_be_built_is_said() -> None:
    pytest.importorskip("torch")
    model = {"target": "no_such_package.model", "task": "image-classification"}
    with pytest.raises(tracing.TraceError, match="no_such_package"):
        tracing.request_traces([{**RESNET, "model": model}])


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(tracing.TraceError, match="no interpreter"):
        tracing.request_traces([], "/no/such/python")


def test_the_time_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is ended then, and waited for: no orphan is left."""
    start, started = processes.start_python, []

    def noted(*arguments: Any, **more: Any) -> Any:
        started.append(start(*arguments, **more))
        return started[-1]

    monkeypatch.setattr(processes, "start_python", noted)
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    with pytest.raises(tracing.TraceError, match="more than"):
        tracing.request_traces([_request("llama")], str(silent), time_limit_s=0.05)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
