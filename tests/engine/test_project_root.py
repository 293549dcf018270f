"""Which folder is the root of what is checked, and whose settings govern it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.engine.files import batches
from preflight.engine.settings import load

PYPROJECT = "[project]\nname = 'x'\n"


def root_of(path: Path, cwd: Path) -> Path:
    [batch] = batches([str(path)], cwd, from_hook=False)
    return batch.root


def tree(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PYPROJECT if name.endswith(".toml") else "import torch\n")
    return root


def test_a_pyproject_of_a_folder_above_has_nothing_to_do_with_the_tree(tmp_path: Path) -> None:
    tree(tmp_path, "pyproject.toml", "work/tree/sub/train.py")
    checked = tmp_path / "work" / "tree"
    assert root_of(checked / "sub" / "train.py", checked) == checked
    assert root_of(checked, checked) == checked


def test_a_pyproject_in_the_checkout_or_below_the_current_directory_is_a_project(tmp_path: Path) -> None:
    tree(tmp_path, "mono/part/pyproject.toml", "mono/part/src/train.py")
    part = tmp_path / "mono" / "part"
    assert root_of(part / "src" / "train.py", tmp_path / "mono") == part
    (tmp_path / "mono" / ".git").mkdir()
    assert root_of(part / "src" / "train.py", part / "src") == part


def test_the_top_of_the_checkout_is_the_root(tmp_path: Path) -> None:
    tree(tmp_path, "pyproject.toml", "repo/a/b/train.py")
    (tmp_path / "repo" / ".git").mkdir()
    assert root_of(tmp_path / "repo" / "a" / "b" / "train.py", tmp_path / "repo" / "a") == tmp_path / "repo"


def test_settings_above_the_checkout_do_not_govern_it(tmp_path: Path) -> None:
    tree(tmp_path, "repo/a/train.py")
    (tmp_path / "preflight.toml").write_text('gpu = "T4"\n')
    assert load(tmp_path / "repo" / "a" / "train.py")[0].gpu == "T4"
    (tmp_path / "repo" / ".git").mkdir()
    assert load(tmp_path / "repo" / "a" / "train.py")[1] is None


@pytest.mark.skipif(os.name != "posix", reason="rights are no part of a mode")
def test_a_folder_that_everybody_may_write_is_nobody_s_project(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    tree(shared, "pyproject.toml", "mine/train.py")
    (shared / "preflight.toml").write_text('gpu = "T4"\n')
    shared.chmod(0o1777)
    assert load(shared / "mine" / "train.py")[1] is None
    assert root_of(shared / "mine" / "train.py", shared / "mine") == shared / "mine"
    assert load(shared)[0].gpu == "T4"  # it is what is checked


def test_the_home_directory_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tree(tmp_path, "pyproject.toml", "job/train.py")
    (tmp_path / "preflight.toml").write_text('gpu = "T4"\n')
    assert load(tmp_path / "job" / "train.py")[1] is None
    assert root_of(tmp_path / "job" / "train.py", tmp_path / "job") == tmp_path / "job"
