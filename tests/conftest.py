"""What tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files into an empty directory that is the current one, and gives the directory."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        return tmp_path

    return write
