"""Projects that tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Write = Callable[[dict[str, str]], Path]
"""Writes files, by their names, into an empty directory that is the current one; gives the directory."""
