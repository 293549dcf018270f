"""The hooks that ship, gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.python import (
    hooks_argparse,
    hooks_click,
    hooks_config,
    hooks_dataclass,
    hooks_lightning,
    hooks_std,
    hooks_torch,
)

if TYPE_CHECKING:
    from preflight.python.evaluator import Hook


def library_hooks() -> dict[str, Hook]:
    """The hooks that ship: argparse, click, dataclass parsers, W&B, Hydra, torch, Lightning, the standard library."""
    rooms = (hooks_std, hooks_argparse, hooks_click, hooks_dataclass, hooks_config, hooks_torch, hooks_lightning)
    return {name: hook for room in rooms for name, hook in room.HOOKS.items()}
