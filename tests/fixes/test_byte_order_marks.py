"""Byte-order marks: taken out of job scripts, kept in files whose readers skip them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import preflight
from test_shared_files import ASKED, PROGRAM

MARK = b"\xef\xbb\xbf"
SCRIPTS = {
    b"#!/bin/bash\n#SBATCH --mem=1G\nhostname\n": b"#!/bin/bash\n#SBATCH --mem=1G\nhostname\n",
    b"#SBATCH --mem=1G\nhostname\n": b"#!/bin/bash\n#SBATCH --mem=1G\nhostname\n",
    b"\n#SBATCH --mem=1G\n": b"#!/bin/bash\n\n#SBATCH --mem=1G\n",
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_job_script_loses_it(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "job.sbatch"
    script.write_bytes(MARK + text)
    found = preflight(capsys, "check", "job.sbatch")
    assert "byte-order mark" in found.out
    assert "job.sbatch:1:1" in found.out
    preflight(capsys, "check", "job.sbatch", "--fix")
    assert script.read_bytes() == SCRIPTS[text]
    assert "byte-order mark" not in preflight(capsys, "check", "job.sbatch").out


def test_yaml_and_python_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    config = tmp_path / "conf" / "config.yaml"
    config.write_bytes(MARK + b"model: bert-base-uncased\r\nbatch_size: 512\r\ngrad_accum: 1\r\n")
    (tmp_path / "train.py").write_bytes(MARK + PROGRAM.encode())
    preflight(capsys, "check", "train.py", *ASKED, "--fix")
    assert config.read_bytes() == MARK + b"model: bert-base-uncased\r\nbatch_size: 256\r\ngrad_accum: 2\r\n"
    assert (tmp_path / "train.py").read_bytes() == MARK + PROGRAM.encode()
