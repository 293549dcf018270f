"""The pages of the documentation, and the scripts that make parts of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
GUIDE = [page for page in PAGES if not page.startswith("docs/rules/")]
"""Without the pages of the rules, which are made as a whole."""


def script(name: str) -> ModuleType:
    """A module of scripts/, which is no package."""
    found = sys.modules.get(f"scripts.{name}")
    if found is None:
        spec = importlib.util.spec_from_file_location(f"scripts.{name}", ROOT / "scripts" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[f"scripts.{name}"] = found
        spec.loader.exec_module(found)
    return found
