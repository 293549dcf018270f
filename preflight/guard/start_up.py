"""What happens in a process that `preflight run` started: the recorder comes when the program imports torch."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SMALL_CARD = "PREFLIGHT_SMALL_CARD"
Hook = Callable[[Any], None]


class Importer(importlib.abc.MetaPathFinder):
    """Runs a function after the module that it is for was imported, once. A library may ask first whether the module
    is there: that imports nothing, and spends no hook."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)
        self._busy: set[tuple[str, int]] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        asked = (name, threading.get_ident())
        if name not in self._hooks or asked in self._busy:
            return None
        self._busy.add(asked)
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        finally:
            self._busy.discard(asked)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            hook = self._hooks.pop(name, None)
            if hook is not None:
                _safely(hook, module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _safely(hook: Hook, module: Any) -> None:
    try:
        hook(module)
    except Exception as error:
        sys.stderr.write(f"preflight run: this process is not recorded: {type(error).__name__}: {error}\n")


def install() -> None:
    """The hooks, before the first line of the program."""
    from .saves import SAVERS

    hooks = {"torch": _torch, "torch.utils.data.dataloader": _loaders, "transformers.generation.utils": _generation}
    hooks.update(dict.fromkeys(SAVERS, _saver))
    sys.meta_path.insert(0, Importer(hooks))


def _torch(_: Any) -> None:
    from . import phases

    size = os.environ.get(SMALL_CARD, "")
    if size:
        from .small_card import SmallCard

        SmallCard(size).__enter__()
    phases.record()


def _loaders(module: Any) -> None:
    from . import loaders

    loaders.watch(module)


def _saver(module: Any) -> None:
    from . import phases

    phases.record().follow_saves(module)


def _generation(module: Any) -> None:
    from . import phases

    phases.record().generates(module)
