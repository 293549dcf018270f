"""The example plugin, installed beside preflight: its own tests pass, and what it adds is gone without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import install

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLUGIN = Path(__file__).resolve().parents[1] / "examples" / "plugin"


@pytest.mark.slow
def test_its_own_tests_pass_where_it_is_installed(tmp_path: Path) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    shutil.copytree(PLUGIN / "preflight_example", tmp_path / "site" / "preflight_example")
    install(tmp_path / "site", project["name"], project["entry-points"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(PLUGIN / "tests")]
    paths = [str(tmp_path / "site"), str(PLUGIN.parents[1])]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_nothing_of_it_is_there_where_it_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "job.tiny").write_text((PLUGIN / "job.tiny").read_text())
    command = [sys.executable, "-m", "preflight", "check", "job.tiny"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "job.tiny is not recognised" in done.stderr
