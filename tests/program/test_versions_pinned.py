"""Versions that the files of a project pin."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown

from preflight.program.versions import bounds, pinned
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Value, evaluate


def versions(root: Path, program: str = "train.py", **files: str) -> dict[str, Value]:
    for name, text in files.items():
        path = root / name.replace("__", ".").replace("--", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {b.field: evaluate(b.expr) for b in pinned(program, Project(root, Settings()))}


LOCK = '[[package]]\nname = "transformers"\nversion = "4.46.0"\nsource = {}\n'
CONDA = "dependencies:\n  - pytorch=2.1.0\n  - conda-forge::transformers=4.46.0\n  - pip:\n    - trl==0.9.4\n"


@pytest.mark.parametrize(
    "files",
    [
        {"requirements__txt": "transformers==4.46.0\n"},
        {"uv__lock": LOCK},
        {"poetry__lock": LOCK.replace("source = {}", 'description = ""')},
        {"environment__yml": CONDA},
        {"setup__py": 'setup(install_requires=[\n    "transformers==4.46.0",\n])\n'},
        {"pyproject__toml": 'dependencies = [\n    "transformers==4.46.0",\n]\n', "uv__lock": LOCK},
    ],
)
def test_a_pinned_version(files: dict[str, str], tmp_path: Path) -> None:
    assert versions(tmp_path, **files)["software.transformers"] == "4.46.0"


def test_a_conda_environment(tmp_path: Path) -> None:
    found = versions(tmp_path, environment__yml=CONDA)
    assert (found["software.torch"], found["software.trl"]) == ("2.1.0", "0.9.4")


@pytest.mark.parametrize("text", ["# transformers==4.46.0\n", "transformers>=4.46\n", "my-transformers==4.46.0\n", ""])
def test_what_pins_nothing(text: str, tmp_path: Path) -> None:
    assert "software.transformers" not in versions(tmp_path, requirements__txt=text)


def test_two_versions_are_none(tmp_path: Path) -> None:
    other = LOCK.replace("4.46.0", "5.0.0")
    assert is_unknown(
        versions(tmp_path, requirements__txt="transformers==4.46.0\n", uv__lock=other)["software.transformers"]
    )
    assert is_unknown(versions(tmp_path, requirements__txt="", uv__lock=LOCK + other)["software.transformers"])


def test_the_nearest_folder_wins(tmp_path: Path) -> None:
    near = "a--requirements__txt"
    files = {"requirements__txt": "transformers==4.46.0\n", near: "transformers==5.0.0\n"}
    assert versions(tmp_path, "a/train.py", **files)["software.transformers"] == "5.0.0"


@pytest.mark.parametrize(
    ("files", "bounds_"),
    [
        ({"pyproject__toml": 'dependencies = [\n    "trl[peft]>=0.24.0,<1",\n]\n'}, {("trl", ">=0.24.0,<1")}),
        ({"pyproject__toml": '[tool.poetry.dependencies]\ntrl = "^0.12.1"\n'}, {("trl", "^0.12.1")}),
        (
            {"requirements__txt": "trl ~= 0.12.0\ntransformers > 4.40\n"},
            {("trl", "~= 0.12.0"), ("transformers", "> 4.40")},
        ),
        ({"requirements__txt": "trl>=0.9\n", "a--requirements__txt": "trl>=0.24\n"}, {("trl", ">=0.24")}),
        ({"requirements__txt": "trl\nmytrl>=0.9\n# trl>=0.9\n"}, set()),
    ],
)
def test_bounds_of_a_version(files: dict[str, str], bounds_: set[tuple[str, str]], tmp_path: Path) -> None:
    versions(tmp_path, **files)
    found = bounds("a/train.py" if "a--requirements__txt" in files else "train.py", Project(tmp_path, Settings()))
    assert {(name, said.strip()) for name, said in found} == bounds_
