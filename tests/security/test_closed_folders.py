"""Folders that may not be listed are said, and everything beside them is checked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import preflight

PROGRAM = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4)).train()
"""


def closed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Tests may run as root, who may list everything: the refusal is the operating system's own words."""
    real = os.scandir

    def scandir(folder: str | Path) -> object:
        if os.path.basename(folder) in names:
            raise PermissionError(13, os.strerror(13), str(folder))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_closed_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("open", "secret", "deep/secret2"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    closed(monkeypatch, "secret", "secret2")
    found = preflight(capsys, "check", ".", "--set", "train.seq_len=128")
    assert "deep/secret2/ was left out: its files cannot be listed" in found.out + found.err
    assert "secret/ was left out: its files cannot be listed" in found.out + found.err
    assert "open/train.py" in found.out


def test_it_is_excluded_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "preflight.toml").write_text('exclude = ["secret"]\n')
    (tmp_path / "secret").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    closed(monkeypatch, "secret")
    found = preflight(capsys, "check", ".")
    assert "left out" not in found.out + found.err


def test_a_named_folder_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").mkdir()
    monkeypatch.chdir(tmp_path)
    closed(monkeypatch, "secret")
    found = preflight(capsys, "check", "secret")
    assert "secret/ was left out: its files cannot be listed" in found.out + found.err
