"""What is known of libraries: what their functions give when a program calls them, and what their attributes hold."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.evaluator import Hook
from preflight.python.hooks import argparse, click, configurations, dataclass_parsers, standard_library, torch
from preflight.python.hooks.configurations import LIBRARY_VALUES as LIBRARY_VALUES

LIBRARY_HOOKS: Mapping[str, Hook] = {
    **standard_library.HOOKS,
    **argparse.HOOKS,
    **click.HOOKS,
    **dataclass_parsers.HOOKS,
    **configurations.HOOKS,
    **torch.HOOKS,
}
