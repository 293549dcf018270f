"""Hooks for libraries: the return values of their functions, and the values of their attributes."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python import config_nodes
from preflight.python.evaluator import Hook
from preflight.python.hooks import (
    argparse,
    arrays,
    audio,
    click,
    configurations,
    data_files,
    dataclass_parsers,
    hub_classes,
    layers,
    lightning,
    loaders,
    pictures,
    registries,
    remote_functions,
    standard_library,
    tables,
    torch,
)
from preflight.python.hooks.configurations import LIBRARY_VALUES as LIBRARY_VALUES

LIBRARY_HOOKS: Mapping[str, Hook] = {
    **standard_library.HOOKS,
    **argparse.HOOKS,
    **click.HOOKS,
    **dataclass_parsers.HOOKS,
    **configurations.HOOKS,
    **config_nodes.HOOKS,
    **torch.HOOKS,
    **arrays.HOOKS,
    **data_files.HOOKS,
    **audio.HOOKS,
    **layers.HOOKS,
    **lightning.HOOKS,
    **pictures.HOOKS,
    **loaders.HOOKS,
    **hub_classes.HOOKS,
    **registries.HOOKS,
    **remote_functions.HOOKS,
    **tables.HOOKS,
}
