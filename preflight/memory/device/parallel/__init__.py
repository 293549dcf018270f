"""Parallel jobs: the layouts that a job may have (layout.py), and one rank of each (rank.py)."""

from __future__ import annotations

from preflight.memory.device.parallel.layout import Layouts, ShardLayout, kept, layouts
from preflight.memory.device.parallel.rank import DeviceRank, derive, rank_of, view

__all__ = ["DeviceRank", "Layouts", "ShardLayout", "derive", "kept", "layouts", "rank_of", "view"]
