"""`preflight estimate JOB.json` on Jobs as people write them: an answer, or one line that names the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.cli import run

BERT: dict[str, object] = {
    "model": {"name": "bert-large-uncased"},
    "task": "sequence-classification",
    "train": {"batch_size": 4, "seq_len": 512, "precision": "fp32", "optimizer": "adamw"},
    "machine": {"gpu": "V100"},
}


def estimate(job: object, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object], str]:
    """(exit status, the JSON, what was said on stderr)."""
    path = folder / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    status = run(["estimate", str(path), "--output-format", "json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else {}, said.err


def test_a_job_as_a_stranger_writes_it_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, _ = estimate(BERT, tmp_path, capsys)
    first = found["device"]
    assert isinstance(first, dict)
    again, same, _ = estimate(found, tmp_path, capsys)  # the output is a Job too, with every field stated
    second = same["device"]
    assert isinstance(second, dict)
    assert (status, again) == (0, 0)
    assert second["requested"]["expected"] == first["requested"]["expected"]  # the interval knows the versions now


def test_an_unknown_gpu_needs_its_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = estimate({**BERT, "machine": {"gpu": "FooGPU 9000"}}, tmp_path, capsys)
    assert (status, said.count("\n")) == (2, 1)
    assert "machine.gpu" in said
    assert "FooGPU 9000" in said
    stated = {**BERT, "machine": {"gpu": "FooGPU 9000", "gpu_memory": "24GiB"}}
    status, found, _ = estimate(stated, tmp_path, capsys)
    device = found["device"]
    assert isinstance(device, dict)
    assert (status, device["capacity"]) == (0, 24 * 2**30)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ({**BERT, "name": "mine"}, "name is not a Job field"),
        ({**BERT, "train": {"lr": 1e-4}}, "train.lr is not a Job field"),
        ({**BERT, "train": {"batch_size": 0}}, "train.batch_size"),
        ({**BERT, "train": {"precision": "fp8"}}, "train.precision"),
        ({**BERT, "software": ["torch"]}, "software"),
    ],
)
def test_what_is_wrong_is_one_line(job: object, names: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, said = estimate(job, tmp_path, capsys)
    assert (status, found, said.count("\n")) == (2, {}, 1)
    assert names in said


def test_why_there_is_no_figure_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {**BERT, "train": {"batch_size": 4, "seq_len": 512, "optimizer": "shampoo"}}
    status, found, _ = estimate(job, tmp_path, capsys)
    assert (status, found["device"]) == (0, None)
    assert "shampoo" in str(found["notes"])
