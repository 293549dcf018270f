"""Python files that state another coding than UTF-8: read, shown and edited by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import preflight

from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.settings import Settings

NAME = 'NAME = "Gr\u00fc\u00dfe"\n'
PROGRAM = """# coding: latin-1
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

%smodel = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("\u00fc", per_device_train_batch_size=64)).train()
"""


def read(folder: Path, data: bytes, name: str = "train.py") -> str:
    (folder / name).write_bytes(data)
    return Project(folder, Settings()).source(name).text


@pytest.mark.parametrize(
    "first",
    [
        "# coding: latin-1",
        "# -*- coding: iso-8859-15 -*-",
        "#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :",
        "\n# coding=latin_1",
        "# coding: latin-1\r",
    ],
)
def test_the_stated_coding_holds(first: str, tmp_path: Path) -> None:
    text = f"{first}\n{NAME}"
    assert read(tmp_path, text.encode("latin-1")) == text


@pytest.mark.parametrize("coding", ["utf-8", "UTF_8", "utf-8-unix"])
def test_utf_8_is_utf_8(coding: str, tmp_path: Path) -> None:
    text = f"# coding: {coding}\n{NAME}"
    assert read(tmp_path, text.encode()) == text


def test_several_bytes_a_character(tmp_path: Path) -> None:
    text = "# coding: gbk\nx = '\u8bad\u7ec3'\n"
    assert read(tmp_path, text.encode("gbk")) == text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# coding: no-such-coding\nx = 1\n", "it states the coding no-such-coding"),
        (b"# coding: ascii\nx = '\xfc'\n", "it states the coding ascii"),
        (b"# coding: punycode\nx = 1\n", "it states the coding punycode"),
        (b"# coding: hex\nff\n", "it states the coding hex"),
        (b"x = 1\n# coding: latin-1\ny = '\xfc'\n", "it is not UTF-8 text"),
        (b"'''a'''\n# coding: latin-1\ny = '\xfc'\n", "it is not UTF-8 text"),
    ],
)
def test_what_python_would_not_read_by_it_either(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=why):
        read(tmp_path, data)


def test_only_python_files_state_one(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="not UTF-8"):
        read(tmp_path, b"# coding: latin-1\nx: '\xfc'\n", "x.yaml")


def test_a_job_is_read_and_its_file_keeps_the_coding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_bytes((PROGRAM % NAME).encode("latin-1"))
    asked = ("--gpu", "RTX 4090", "--set", "train.seq_len=512")
    assert "exceeds" in preflight(capsys, "check", "train.py", *asked).out
    preflight(capsys, "check", "train.py", *asked, "--fix")
    fixed = (tmp_path / "train.py").read_bytes().decode("latin-1")
    assert fixed.startswith("# coding: latin-1\n")
    assert NAME in fixed
    assert "per_device_train_batch_size=64" not in fixed
    assert "gradient_accumulation_steps" in fixed
