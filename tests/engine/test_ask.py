"""What a program asks: the same answers as the command line gives, and the errors that it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, preflight

from preflight.api import GIB, PreflightError, UsageError, check, estimate, job_of

FIELDS = {"model": "gpt2", "train.batch_size": 4, "train.seq_len": 64, "train.optimizer": "adamw_torch_fused"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modle": "gpt2"}, "modle"),
        ({"model": "gpt2", "train.batch_size": "many"}, "train.batch_size = 'many'"),
        ({"model": "gpt2", "train.batch_size": 0}, "train.batch_size = 0"),
    ],
)
def test_fields_that_make_no_job(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job_of(fields)


def test_a_gpu_that_nobody_knows() -> None:
    with pytest.raises(PreflightError, match="machine"):
        estimate(job_of(FIELDS), "X9999")
    with pytest.raises(PreflightError, match=r"machine\.gpu"):
        estimate(job_of({**FIELDS, "machine": "X9999"}))


def test_a_job_is_spelled_as_libraries_do() -> None:
    assert (job_of(FIELDS).train.optimizer, job_of(FIELDS).train.optimizer_impl) == ("adamw", "fused")


def test_an_estimate_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = estimate(job_of({**FIELDS, "task": "causal-lm"}), "T4").device
    sets = [f"--set={name}={value}" for name, value in FIELDS.items() if name != "model"]
    said = json.loads(preflight(capsys, "estimate", "gpt2", *sets, "--gpu=T4", "--output-format=json").out)["device"]
    assert found is not None
    assert found.process.expected == said["process"]["expected"] > GIB
    assert found.capacity == said["capacity"]
    assert found.verdict == "fits"


def test_an_unknown_side_has_its_reason() -> None:
    found = estimate(job_of({"model": "gpt2"}))
    assert found.device is None
    assert "train.batch_size" in found.reasons["device"]


def test_a_check(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "train.py").write_text(PROGRAM)
    outcome = check(["sweep.yaml"], gpu="T4", cwd=tmp_path)
    [report] = outcome.reports
    assert [study.gpu and study.gpu.name for study in report.studies] == ["T4"]
    assert {finding.rule for finding in report.findings} >= {"logits-exceed-gpu"}
    assert check([tmp_path / "sweep.yaml"], gpu="T4", set={"train.batch_size": 1}, cwd=tmp_path).counts["error"] == 0


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no such file"):
        check(["nothing.yaml"], cwd=tmp_path)
    (tmp_path / "a.py").write_text("")
    with pytest.raises(PreflightError, match="no rule"):
        check(["a.py"], select=["no-such-rule"], cwd=tmp_path)
