"""Parallel jobs: the layouts that a job may have (layout.py), and one rank of each (ranks.py)."""

from __future__ import annotations

from preflight.memory.device.parallel.layout import Layouts, ShardLayout, kept, layouts
from preflight.memory.device.parallel.rank import DeviceRank, view
from preflight.memory.device.parallel.ranks import derive, rank_of

__all__ = ["DeviceRank", "Layouts", "ShardLayout", "derive", "kept", "layouts", "rank_of", "view"]
