"""The hook of the recorder runs when a module is loaded, whoever asked for it before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.guard.start_up import Importer


def test_a_hook_runs_once_after_the_module_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_library.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[Any] = []
    monkeypatch.setattr(sys, "meta_path", [Importer({"some_library": seen.append}), *sys.meta_path])
    assert importlib.util.find_spec("some_library") is not None
    assert importlib.util.find_spec("some_library") is not None
    assert not seen
    module = importlib.import_module("some_library")
    monkeypatch.delitem(sys.modules, "some_library")
    importlib.import_module("some_library")
    assert seen == [module]
    assert seen[0].loaded
