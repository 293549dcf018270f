"""`preflight serve`: what happens before the first request."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.commands import serve
from preflight.vocabulary.errors import UsageError

uvicorn = pytest.importorskip("uvicorn")
service = pytest.importorskip("preflight.batch.service")
JOB = {"model": "gpt2", "train": {"batch_size": 3, "seq_len": 64}, "machine": {"gpu": "t4"}}


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The Jobs that are judged first; nothing is served."""
    found: list[object] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: None)
    monkeypatch.setattr(service.Service, "warm", lambda self, rows: found.extend(rows))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: None)
    return found


def test_the_jobs_of_a_table_are_judged_first(tmp_path: Path, warmed: list[object]) -> None:
    table = tmp_path / "jobs.jsonl"
    table.write_text(f"{json.dumps(JOB)}\nno JSON\n{json.dumps(JOB)}\n", encoding="utf-8")
    result = CliRunner().invoke(serve.command, ["--warm", str(table)])
    assert result.exit_code == 0, result.output
    assert warmed == [serve.WARM, JOB, JOB]


def test_a_table_that_is_not_there(tmp_path: Path, warmed: list[object]) -> None:
    result = CliRunner().invoke(serve.command, ["--warm", str(tmp_path / "jobs.jsonl")])
    assert isinstance(result.exception, UsageError)
    result = CliRunner().invoke(serve.command, ["--warm", str(tmp_path / "jobs.txt")])
    assert isinstance(result.exception, UsageError)
