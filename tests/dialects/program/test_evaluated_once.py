"""A program is evaluated once for all launches, command lines and texts that it would read in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects.program.reader import read
from preflight.frameworks import calls
from preflight.python.interpreter import Interpreter
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Launch, Word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const

PARSER = """import argparse, sys
{more}
parser = argparse.ArgumentParser()
parser.add_argument("--output", default="out.json")
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
loader = DataLoader(data, batch_size=args.batch_size)
"""
FILES = {"other.yaml": "a: 1\n", "read.yaml": "batch_size: 8\n"}


def call(*words: str) -> Call:
    parts = (Word(word) if word.startswith("--") else Word("", Const(word)) for word in words)
    return Call("run.sh", tuple(parts), {}, Launch())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are evaluated, in order."""
    found: list[str] = []
    real = Interpreter.run
    monkeypatch.setattr(
        Interpreter, "run", lambda self, path, *more, **named: (found.append(path), real(self, path, *more, **named))[1]
    )
    return found


def project(tmp_path: Path, more: str) -> Project:
    for name, text in {"train.py": PARSER.format(more=more), **FILES}.items():
        (tmp_path / name).write_text(text)
    return Project(tmp_path, Settings())


@pytest.mark.parametrize(
    ("more", "first", "second"),
    [
        ("print(sys.argv[1])", ["a"], ["b"]),
        ("print(len(sys.argv))", ["a"], ["a", "b"]),
        ("print(sys.argv[-1])", ["a", "x"], ["a", "y"]),
        ("name = sys.argv[2] if sys.argv[1] == 'a' else 1", ["a", "b"], ["a", "c"]),
    ],
)
def test_another_word_that_is_read_is_evaluated_anew(
    more: str, first: list[str], second: list[str], tmp_path: Path, runs: list[str]
) -> None:
    one = project(tmp_path, more)
    for words in (first, second):
        read(one.source("train.py"), call(*words), one)
    assert len(runs) == 2


@pytest.mark.parametrize("more", ["", "print(sys.argv[0])", "sys.argv = [sys.argv[0], 'x']", "print(sys.argv[1])"])
def test_words_that_are_not_read_change_nothing(more: str, tmp_path: Path, runs: list[str]) -> None:
    one = project(tmp_path, more)
    for number in range(3):
        read(one.source("train.py"), call("evaluate", "--batch_size", str(number)), one)
    assert len(runs) == 1


def test_names_of_data_files_that_decide_nothing_change_nothing(tmp_path: Path, runs: list[str]) -> None:
    one = project(tmp_path, "")
    for name in ("a.json", "b.json"):
        read(one.source("train.py"), call("--output", name), one)
    assert len(runs) == 1


def test_names_of_data_files_that_are_read_are_read(tmp_path: Path, runs: list[str]) -> None:
    one = project(tmp_path, "")
    text = PARSER.format(more="import yaml") + "found = yaml.safe_load(open(args.output))\n"
    (tmp_path / "train.py").write_text(text + "DataLoader(data, batch_size=found['batch_size'])\n")
    for name in ("read.yaml", "other.yaml", "read.yaml"):
        reading = read(one.source("train.py"), call("--output", name), one)
        assert ("read.yaml" in reading.reads) == (name == "read.yaml")
    assert len(runs) == 3  # without names, and with each of two


LOADS = "import yaml\nfound = yaml.safe_load(open('read.yaml'))\n"


@pytest.mark.parametrize(
    ("texts", "evaluated"),
    [({"other.yaml": "a: 2\n"}, 1), ({"read.yaml": "batch_size: 9\n"}, 2), ({"new.yaml": "a: 1\n"}, 2)],
)
def test_only_a_change_of_what_it_reads_is_evaluated_anew(
    texts: dict[str, str], evaluated: int, tmp_path: Path, runs: list[str]
) -> None:
    one = project(tmp_path, LOADS)
    read(one.source("train.py"), None, one)
    before = len(runs)
    other = one.with_overlay(texts)
    read(other.source("train.py"), None, other)
    read(one.source("train.py"), None, one)
    assert len(runs) - before == (before if evaluated == 2 else 0)


def test_a_changed_program_is_evaluated_anew(tmp_path: Path, runs: list[str]) -> None:
    one = project(tmp_path, "")
    read(one.source("train.py"), None, one)
    before = len(runs)
    other = one.with_overlay({"train.py": PARSER.format(more="print(1)")})
    read(other.source("train.py"), None, other)
    assert len(runs) > before


@pytest.mark.parametrize(("edited", "times"), [("other.yaml", 1), ("train.py", 2)])
def test_the_calls_are_read_again_for_another_text_that_they_ask_for(
    edited: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Project] = []
    real = calls.read_calls
    monkeypatch.setattr(calls, "read_calls", lambda *given: (asked.append(given[1]), real(*given))[1])
    one = project(tmp_path, "")
    for state in (one, one.with_overlay({edited: one.source(edited).text + "\n"})):
        read(state.source("train.py"), None, state)
    assert len(asked) == times
