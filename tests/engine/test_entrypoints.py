"""Entry points read off the files, against what the standard library finds."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

from preflight.engine.entrypoints import values_of

GROUPS = ["preflight.rules", "console_scripts", "pytest11", "no.such.group"]


def _library(group: str) -> list[str]:
    return sorted({point.value for point in entry_points(group=group)})


def _distribution(home: Path, name: str, text: str) -> None:
    folder = home / f"{name}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(text)


@pytest.mark.parametrize("group", GROUPS)
def test_this_environment(group: str) -> None:
    assert values_of(group) == _library(group)


def test_sections_comments_and_shadowed_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _distribution(
        first, "My_Rules-2.0", "[other]\na = x\n\n[some.group]\n# b = y\nc = pkg.module:attr [extra]\nd=pkg.d\n"
    )
    _distribution(second, "my_rules-1.0", "[some.group]\nold = pkg.old\n")
    _distribution(second, "more-1.0", "[some.group]\nmore = pkg.more\n")
    monkeypatch.setattr(sys, "path", [str(first), str(second), str(tmp_path / "missing"), *sys.path])
    assert values_of("some.group") == _library("some.group") == ["pkg.d", "pkg.module:attr [extra]", "pkg.more"]


def test_archives_are_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1\n")
        archive.writestr("packed-1.0.dist-info/entry_points.txt", "[some.group]\na = packed.rules\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "packed.zip")])
    assert values_of("some.group") == ["packed.rules"]
