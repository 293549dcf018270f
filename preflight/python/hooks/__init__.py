"""What is known of libraries: what their functions give when a program calls them, and what their attributes hold."""

from __future__ import annotations

from preflight.python.evaluator import Hook
from preflight.python.hooks import argparse, click, configurations, dataclass_parsers, standard_library, torch
from preflight.python.hooks.configurations import LIBRARY_VALUES as LIBRARY_VALUES


def library_hooks() -> dict[str, Hook]:
    """The hooks that ship: argparse, click, dataclass parsers, W&B, Hydra, torch, Lightning, the standard library."""
    modules = (standard_library, argparse, click, dataclass_parsers, configurations, torch)
    return {name: hook for module in modules for name, hook in module.HOOKS.items()}
