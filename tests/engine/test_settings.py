"""Settings: the closest file counts, and what is wrong in it is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine.settings import load, parse
from preflight.vocabulary.errors import SettingsError
from preflight.vocabulary.settings import matches


def test_no_file_means_defaults(tmp_path: Path) -> None:
    settings, file = load(tmp_path / "x.yaml")
    assert (settings.gpu, settings.trace) == (None, True)
    assert file is None or tmp_path not in file.parents


def test_closest_file_counts_and_nothing_is_merged(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.preflight]\ngpu = "outer"\nignore = ["x"]\n')
    (tmp_path / "a" / "preflight.toml").write_text('gpu = "inner"\n')
    (tmp_path / "a" / "b" / "pyproject.toml").write_text('[project]\nname = "preflight-user"\n')
    settings, file = load(tmp_path / "a" / "b" / "x.yaml")
    assert (settings.gpu, settings.ignore, file) == ("inner", [], tmp_path / "a" / "preflight.toml")
    assert load(tmp_path / "x.yaml")[0].gpu == "outer"


def test_dotted_names_may_be_tables() -> None:
    settings = parse('[set]\ndata.sample_bytes = 5\n"train.seq_len" = 7\n[map]\nmodel.bs = "train.batch_size"\n')
    assert settings.set == {"data.sample_bytes": 5, "train.seq_len": 7}
    assert settings.map == {"model.bs": "train.batch_size"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpuu = 1", 'gpuu: there is no such setting (did you mean "gpu"?)'),
        ("gpu = 1", "gpu: input should be a valid string"),
        ("gpu =", "not valid TOML"),
        ('[set]\n"train.batch_size" = 0', "train.batch_size = 0"),
        ('[set]\n"train.batch" = 1', 'train.batch is not a Job field (did you mean "train.batch_size"?)'),
        ('[map]\nbs = "batch"', "map.bs: batch is not a Job field"),
        ('[rules.x]\nseverity = "fatal"', "rules.x.severity"),
        ('[tool.preflight]\ngpu = "a100"', "at the top level"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value).replace(text, "")


@pytest.mark.parametrize(
    ("path", "glob", "expected"),
    [
        ("a/b.yaml", "*.yml", False),
        ("a/b.yaml", "a/*.yml", False),
        ("a/b/c.yaml", "a/*.yaml", False),
        ("ab/c.yaml", "a", False),
        ("a", "a/**", False),
        ("a/b.yaml", "a[!x]b.yaml", False),
        ("a" * 4096, "*a" * 60 + "*b", False),  # in time that does not grow with the pattern's power
        ("/".join("a" * 2000), "**/a" * 40 + "/b", False),
        ("x/a/b.yaml", "a/b.yaml", False),
        ("a/b.yaml", "*.yaml", True),
        ("a/b/c.yaml", "a", True),
        ("a/b/c.yaml", "b/", True),
        ("a/b/c.yaml", "a/**", True),
        ("a/b/c.yaml", "a/**/c.yaml", True),
        ("a/c.yaml", "a/**/c.yaml", True),
        ("c.yaml", "**/c.yaml", True),
        ("a1.yaml", "a[0-9].yaml", True),
        ("a1.yaml", "./a?.yaml", True),
        ("a[1.yaml", "a[1.yaml", True),
        ("a\n1.yaml", "a?1.yaml", True),
        ("ab/c/d/e.yaml", "a*/**/[!x]/*.yaml", True),
        ("a" * 4096 + "b", "*a" * 60 + "*b", True),
    ],
)
def test_globs(path: str, glob: str, expected: bool) -> None:
    assert matches(path, [glob]) is expected
