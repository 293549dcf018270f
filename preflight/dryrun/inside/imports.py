"""Hooks that run after a library was imported, and stand-ins for loggers that are not installed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import places
from .endings import NotThere
from .patches import Anything
from .stand_ins.own_code import may_be_absent
from .tape import Tape

Hook = Callable[[Any], None]

LOGGERS = frozenset({"wandb", "mlflow", "comet_ml", "neptune", "clearml", "aim", "visdom", "swanlab", "trackio",
                     "tensorboard_logger", "tensorboardX"})  # fmt: skip
"""Services that record a run: they have no part in its memory."""


class Settings(dict):  # type: ignore[type-arg]
    """wandb.config: what the program has put into it, and nothing else. What a sweep would put there is not known."""

    def update(self, given: Any = (), *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Values of a mapping, or of what argparse has read."""
        super().update(given if isinstance(given, Mapping) else getattr(given, "__dict__", {}))

    setdefaults = update

    def as_dict(self) -> dict[str, Any]:
        return dict(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __missing__(self, name: str) -> Any:
        raise NotThere(
            f"the program takes {name} from its search (wandb.config): run its sweep, preflight dry-run SWEEP.yaml, or "
            "give it a default"
        )


class _StandIn(importlib.abc.Loader):
    """A logger that is not there: a module that takes every call."""

    def __init__(self, tape: Tape, searched: Mapping[str, Any], hook: Hook | None) -> None:
        self._tape, self._searched, self._hook = tape, searched, hook

    def create_module(self, spec: Any) -> Any:
        module: Any = types.ModuleType(spec.name)
        module.__path__, module.__getattr__ = [], Anything().__getattr__
        if spec.name == "wandb":
            self._as_wandb(module)
        return module

    def _as_wandb(self, module: Any) -> None:
        """What a run of wandb keeps: its settings are read back."""
        run: Any = Anything()
        run.config = module.config = Settings()
        module.run = run

        def begun(*_: Any, config: Any = None, **__: Any) -> Any:
            module.config.update(config or {})
            module.config.update(self._searched)
            return run

        module.init = begun

    def exec_module(self, module: Any) -> None:
        self._tape.assume(f"{module.__name__} is not installed: a stand-in takes its calls")
        if self._hook is not None:
            self._hook(module)


class _Package(importlib.abc.Loader):
    """A package whose functions have stand-ins of their own."""

    def __init__(self, fill: Hook) -> None:
        self._fill = fill

    def exec_module(self, module: Any) -> None:
        self._fill(module)


class Importer(importlib.abc.MetaPathFinder):
    """Runs a hook after the module that it is for was imported."""

    def __init__(
        self, hooks: Mapping[str, Hook], tape: Tape, searched: Mapping[str, Any], packages: Mapping[str, Hook]
    ) -> None:
        self._hooks, self._tape, self._searched, self._packages = hooks, tape, searched, packages
        self._busy: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name in self._busy:
            return None
        stand_in = self._logger(name) if name.split(".")[0] in LOGGERS or name in self._packages else None
        if stand_in is not None or name not in self._hooks:
            return stand_in
        spec = self._found(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            self._hooks[name](module)

        spec.loader.exec_module = executed
        return spec

    def _found(self, name: str) -> Any:
        self._busy.add(name)
        try:
            return importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        finally:
            self._busy.discard(name)

    def _logger(self, name: str) -> Any:
        """A stand-in for the program's own import: libraries ask whether a logger is there, and do without, and so does
        a program that handles the error."""
        library, user = places.here(3)
        inside = name.partition(".")[0] in sys.modules and name in self._packages
        if self._found(name) is not None or (not inside and (library or not user or may_be_absent())):
            return None
        filled = self._packages.get(name)
        loader = _Package(filled) if filled else _StandIn(self._tape, self._searched, self._hooks.get(name))
        return importlib.machinery.ModuleSpec(name, loader, is_package=True)


def install(hooks: Mapping[str, Hook], tape: Tape, searched: Mapping[str, Any], packages: Mapping[str, Hook]) -> None:
    """Hooks for modules that are imported already run at once. `searched`: what a sweep puts into wandb.config.
    `packages`: what fills the modules of those that have stand-ins and are not installed."""
    for name, hook in hooks.items():
        if name in sys.modules:
            hook(sys.modules[name])
    sys.meta_path.insert(0, Importer(hooks, tape, searched, packages))
