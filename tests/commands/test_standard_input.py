"""`preflight check -`: standard input is checked as a file of a project, and nothing else of the contract changes."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from command_line import FITTING, PROGRAM, SWEEP, Command
from folders import Write

from preflight.system.import_path import checked_trees
from preflight.vocabulary.project import MAX_BYTES

AS_SWEEP = ("-", "--stdin-filename", "sweep.yaml", "--gpu", "RTX 4090", "-f", "concise")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> object:
    """Gives standard input."""

    def give(text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@pytest.mark.parametrize(
    ("data", "arguments", "words"),
    [
        (SWEEP, ("-",), "say with --stdin-filename NAME which file this is"),
        (SWEEP, ("-", "train.py", "--stdin-filename", "sweep.yaml"), "without other paths"),
        (SWEEP, ("--stdin-filename", "sweep.yaml"), "write `-` as the path"),
        (SWEEP, (*AS_SWEEP, "--fix"), "--diff shows the changes"),
        (SWEEP, (*AS_SWEEP, "--unsafe-fixes"), "--diff shows the changes"),
        (SWEEP, (*AS_SWEEP, "--add-ignore"), "--diff shows the changes"),
        (b"a: \xff", AS_SWEEP, "not UTF-8 text (byte 3)"),
        (b"a: \0", AS_SWEEP, "binary"),
        (b"#" * (MAX_BYTES + 1), AS_SWEEP, "larger than 8 MiB"),
    ],
)
def test_refused_in_one_line(
    project: Write, check: Command, typed, data: str | bytes, arguments: tuple[str, ...], words: str
) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    typed(data)
    run = check(*arguments)
    assert (run.status, run.out, run.err.count("\n")) == (2, "", 1)
    assert words in run.err
    assert (root / "sweep.yaml").read_text() == SWEEP


def test_closed_input_is_an_error(project: Write, check: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"train.py": PROGRAM})
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in check(*AS_SWEEP).err


def test_the_text_counts_and_not_the_file(project: Write, check: Command, typed) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    typed(FITTING)
    assert check(*AS_SWEEP).status == 0
    typed(SWEEP)
    run = check(*AS_SWEEP)
    assert run.status == 1
    assert run.out.startswith("sweep.yaml:4:23: error[too-large]")


def test_the_file_need_not_exist(project: Write, check: Command, typed) -> None:
    root = project({"train.py": PROGRAM})
    typed(SWEEP)
    assert check(*AS_SWEEP).status == 1
    assert sorted(path.name for path in root.iterdir()) == ["train.py"]


def test_settings_and_ignores_are_those_of_its_place(project: Write, check: Command, typed) -> None:
    project({"sub/preflight.toml": 'gpu = "RTX 4090"\n', "sub/train.py": PROGRAM, "train.py": PROGRAM})
    typed(SWEEP)
    inner = json.loads(check("-", "--stdin-filename", "sub/sweep.yaml", "-f", "json").out)
    assert [found["path"] for found in inner["findings"]] == ["sweep.yaml"]
    typed(SWEEP)
    assert json.loads(check("-", "--stdin-filename", "sweep.yaml", "-f", "json").out)["findings"] == []
    typed(SWEEP.replace("# as in the paper", "# preflight: ignore[too-large]"))
    assert check(*AS_SWEEP).status == 0


def test_excluded_file_is_not_checked(project: Write, check: Command, typed) -> None:
    project({"preflight.toml": 'exclude = ["sweep.yaml"]\n', "train.py": PROGRAM})
    typed(SWEEP)
    assert json.loads(check("-", "--stdin-filename", "sweep.yaml", "-f", "json").out)["studies"] == []


def test_name_of_no_dialect_is_an_error_as_for_a_file(project: Write, check: Command, typed) -> None:
    project({})
    typed("a: 1\n")
    run = check("-", "--stdin-filename", "notes.yaml")
    assert run.status == 2
    assert "notes.yaml is not recognised" in run.err


def test_byte_order_mark_is_left_out_as_of_a_file(project: Write, check: Command, typed) -> None:
    project({"train.py": PROGRAM})
    typed(b"\xef\xbb\xbf" + SWEEP.encode())
    assert check(*AS_SWEEP).out.startswith("sweep.yaml:4:23:")


def test_diff_shows_the_fix_of_the_text(project: Write, check: Command, typed) -> None:
    root = project({"sweep.yaml": FITTING, "train.py": PROGRAM})
    typed(SWEEP)
    run = check(*AS_SWEEP, "--diff")
    assert run.status == 1
    assert "-  batch_size: {value: 64}" in run.out
    assert (root / "sweep.yaml").read_text() == FITTING


@pytest.mark.parametrize("joined", [False, True])
def test_the_tree_of_the_file_is_a_checked_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: bool) -> None:
    """Nothing is imported from it, although no word of the command line names a file that exists."""
    here, other = tmp_path / "here", tmp_path / "other" / ".git"
    here.mkdir()
    other.mkdir(parents=True)
    monkeypatch.chdir(here)
    name = os.path.join("..", "other", "new.yaml")
    words = ["check", "-", *([f"--stdin-filename={name}"] if joined else ["--stdin-filename", name])]
    assert str(other.parent.resolve()) in checked_trees(words)
