"""Answers in the settings file: one line more, every other byte as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preflight.engine.answers import with_line, written
from preflight.engine.settings import parse
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.outcome import Question

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GPU = Question("machine.gpu", "Which GPU?", "text", 1)
LENGTH = Question("train.seq_len", "How long?", "number", 1)


STATED = ['gpu = "A10"\n', "set.train.seq_len = 1\n", "set = 3\n", "[set.train]\nseq_len = 4\n"]


@pytest.mark.parametrize("text", STATED)
def test_nothing_is_written_where_it_is_stated_or_has_no_place(text: str) -> None:
    key = "gpu" if "gpu" in text else "set.train.seq_len"
    with pytest.raises(UsageError, match="write it by hand"):
        with_line(text, key, "H100" if key == "gpu" else 2048)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a comment\n",
        'exclude = ["a"]  # without a newline',
        'roots = [\n  "a.yaml",\n  "b.yaml",\n]\r\n[rules.x]\r\nseverity = "info"\r\n',
        '[set]\n"train.batch_size" = 8\n\n[map]\nbs = "train.batch_size"\n',
        "set = { train.batch_size = 8 }\n",
        "set = {}\n",
        "[set.train]\nbatch_size = 8\n",
        "set.train.batch_size = 8\n[map]\n",
        '[map]\nx = """\n[set]\n"""\n',
    ],
)
def test_a_line_more_and_every_other_byte_as_before(text: str) -> None:
    once = with_line(text, "set.train.seq_len", 2048)
    if "map]\nx" not in text:  # a map of a text that is no field
        assert parse(once).set["train.seq_len"] == 2048
    twice = with_line(once, "gpu", 'a "quoted" name')
    assert tomllib.loads(twice)["gpu"] == 'a "quoted" name'
    rest = iter(twice)
    assert all(character in rest for character in text.rstrip())  # in its order, nothing taken away


def test_pyproject_keeps_its_own_tables() -> None:
    text = '[project]\nname = "x"\n\n[tool.preflight]\nroots = ["a.py"]\n\n[tool.ruff]\nline-length = 99\n'
    after = with_line(text, "gpu", "H100", "pyproject.toml")
    assert after == text.replace('roots = ["a.py"]\n', 'roots = ["a.py"]\ngpu = "H100"\n')
    only = "[tool.preflight.set]\ntrain.batch_size = 8\n"
    found = tomllib.loads(with_line(only, "gpu", "H100", "pyproject.toml"))["tool"]["preflight"]
    assert found == {"gpu": "H100", "set": {"train": {"batch_size": 8}}}


def test_a_new_file_is_made_only_where_there_is_none(tmp_path: Path) -> None:
    assert written(tmp_path, [(GPU, "H100"), (LENGTH, 2048)]) == tmp_path / "preflight.toml"
    assert (tmp_path / "preflight.toml").read_text() == 'gpu = "H100"\nset.train.seq_len = 2048\n'
    assert [path.name for path in tmp_path.iterdir()] == ["preflight.toml"]


def test_the_mode_of_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "preflight.toml"
    file.write_text('gpu = "H100"  # ours\n')
    file.chmod(0o640)
    written(tmp_path, [(LENGTH, 2048)])
    assert file.read_text() == 'gpu = "H100"  # ours\nset.train.seq_len = 2048\n'
    assert file.stat().st_mode & 0o777 == 0o640
