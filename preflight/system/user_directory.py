"""Where the user's own files lie: settings, saved machines, the cache of laws."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def user_directory(kind: Literal["config", "cache"]) -> Path | None:
    """The user's own directory; None where the environment names one by a relative path, which would be in the tree."""
    import platformdirs

    find = platformdirs.user_config_path if kind == "config" else platformdirs.user_cache_path
    path = find("preflight")
    return path if path.is_absolute() else None
