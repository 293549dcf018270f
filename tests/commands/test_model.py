"""`preflight model`: the list is grouped, narrowed by words, and says when nothing is left."""

from __future__ import annotations

import json

import pytest

from preflight.cli import run
from preflight.memory.device.law import catalogue

Capture = pytest.CaptureFixture[str]


def test_every_model_is_listed_under_its_architecture(capsys: Capture) -> None:
    assert run(["model", "list"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    rows = [line.split()[0] for line in lines if line.startswith("  ")]
    headings = [line for line in lines if not line.startswith("  ")]
    assert sorted(rows) == sorted(catalogue.names())
    assert len(set(headings)) == len(headings)
    assert last.startswith(f"{len(rows)} models")
    assert max(map(len, lines)) <= 100


def test_words_narrow_the_list(capsys: Capture) -> None:
    run(["model", "list", "qwen3", "moe"])
    assert capsys.readouterr().out.splitlines() == [
        "qwen3_moe causal-lm",
        "  Qwen/Qwen3-30B-A3B     30.53B",
        "  Qwen/Qwen3-235B-A22B  235.09B",
        "2 models",
    ]


def test_no_model_left_is_said(capsys: Capture) -> None:
    assert run(["model", "list", "qwen3", "whisper"]) == 2
    assert "no model has qwen3 and whisper in its name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["vgg16", "llava-hf/llava-1.5-7b-hf", "meta-llama/Llama-2-7b"])
def test_a_model_is_shown(name: str, capsys: Capture) -> None:
    """With a target and no config, without a law, and under another spelling."""
    assert run(["model", "show", name]) == 0
    capsys.readouterr()
    run(["model", "show", name, "--output-format", "json"])
    data = json.loads(capsys.readouterr().out)
    found = catalogue.find(name)
    assert found is not None
    assert (data["name"], data["parameters"]) == (found.name, found.parameters)
